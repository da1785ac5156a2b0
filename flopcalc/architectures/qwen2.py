"""Qwen2, dense and MoE: llama with biases on the query, key and value projections."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    Decoder,
    TypedDecoder,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    each,
    mlp,
    moe,
)
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.tree import Layers, Linear, Module


class Qwen2Config(TypedDecoder):
    vocab_size: Size = 151936
    intermediate_size: Size = 22016
    num_key_value_heads: Size | None = 32
    use_sliding_window: bool = False
    sliding_window: Count | None = 4096
    max_window_layers: Count = 28

    def default_layer_types(self) -> list[str]:
        sliding = [
            self.sliding_window is not None and i >= self.max_window_layers for i in range(self.num_hidden_layers)
        ]
        return ["sliding_attention" if slides else "full_attention" for slides in sliding]

    def derive(self) -> None:
        if not self.use_sliding_window:
            self.sliding_window = None
        super().derive()


def qwen2_layers(c: Qwen2Config) -> Layers:
    def layer(kind: str) -> Module:
        return decoder_layer(
            c.hidden_size,
            self_attn=attention(c, c.span(kind), bias=True, o_bias=False),
            mlp=mlp(c.hidden_size, c.intermediate_size),
        )

    return each(layer, c.layer_types)


@register("qwen2", Qwen2Config)
def qwen2(c: Qwen2Config) -> Module:
    return causal_lm(c, qwen2_layers(c))


class SparseStep(Decoder):
    """Which layers are MoE, as Qwen's MoE configs say it."""

    moe_intermediate_size: Size = 1408
    num_experts: Count = aliases("num_experts", "num_local_experts", default=60)
    num_experts_per_tok: Size = 4
    decoder_sparse_step: Size = 1
    mlp_only_layers: list[int] | None = None

    def derive(self) -> None:
        super().derive()
        self.mlp_only_layers = self.mlp_only_layers or []
        check_top_k(self.num_experts_per_tok, self.num_experts)

    def is_sparse(self) -> list[bool]:
        """Whether each layer's MLP is a mixture of experts."""
        return [
            i not in self.mlp_only_layers and self.num_experts > 0 and (i + 1) % self.decoder_sparse_step == 0
            for i in range(self.num_hidden_layers)
        ]


class Qwen2MoeConfig(SparseStep, TypedDecoder):
    vocab_size: Size = 151936
    hidden_size: Size = 2048
    intermediate_size: Size = 5632
    num_hidden_layers: Count = 24
    num_attention_heads: Size = 16
    num_key_value_heads: Size | None = 16
    use_sliding_window: bool = False
    sliding_window: Count | None = 4096
    max_window_layers: Count = 28
    shared_expert_intermediate_size: Size = 5632
    qkv_bias: bool = True

    def default_layer_types(self) -> list[str]:
        sliding = [
            i % 2 == 0 and i < self.max_window_layers and self.use_sliding_window for i in range(self.num_hidden_layers)
        ]
        return ["sliding_attention" if slides else "full_attention" for slides in sliding]

    def derive(self) -> None:
        if not self.use_sliding_window:
            self.sliding_window = 0
        super().derive()


@register("qwen2_moe", Qwen2MoeConfig)
def qwen2_moe(c: Qwen2MoeConfig) -> Module:
    def layer(kind: tuple[str, bool]) -> Module:
        attends, sparse = kind
        return decoder_layer(
            c.hidden_size,
            self_attn=attention(c, c.span(attends), bias=c.qkv_bias, o_bias=False),
            mlp=moe(
                c.hidden_size,
                c.moe_intermediate_size,
                c.num_experts,
                c.num_experts_per_tok,
                shared_expert=mlp(c.hidden_size, c.shared_expert_intermediate_size),
                shared_expert_gate=Linear(c.hidden_size, 1, kind="shared_gate"),
            )
            if sparse
            else mlp(c.hidden_size, c.intermediate_size),
        )

    return causal_lm(c, each(layer, zip(c.layer_types, c.is_sparse(), strict=True)))
