"""Flint: Qwen3's attention with sinks and windows, experts beside one shared expert without a gate."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, attention, causal_lm, decoder_layer, each, mlp, moe
from flopcalc.architectures.qwen2 import SparseStep
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Module, Weight


class FlintConfig(SparseStep, TypedDecoder):
    vocab_size: Size = 150144
    hidden_size: Size = 2048
    intermediate_size: Size = 6144
    num_hidden_layers: Count = 49
    num_key_value_heads: Size | None = 4
    head_dim: Size = 128
    attention_bias: bool = False
    sliding_window: Count | None = 513
    moe_intermediate_size: Size = 512
    shared_expert_intermediate_size: Size = 1024
    num_experts: Count = 256
    num_experts_per_tok: Size = 6

    def default_layer_types(self) -> list[str]:
        last = self.num_hidden_layers - 1
        full = [i < 2 or i % 4 == 1 or i == last for i in range(self.num_hidden_layers)]
        return ["full_attention" if reads_all else "sliding_attention" for reads_all in full]

    def derive(self) -> None:
        if self.mlp_only_layers is None:
            self.mlp_only_layers = [0, 1]
        super().derive()


@register("flint", FlintConfig)
def flint(c: FlintConfig) -> Module:
    hidden = c.hidden_size
    shared = mlp(hidden, c.shared_expert_intermediate_size)

    def layer(kind: tuple[str, bool]) -> Module:
        attends, sparse = kind
        sinks = Weight((c.num_attention_heads,))
        return decoder_layer(
            hidden,
            self_attn=attention(c, c.span(attends), bias=c.attention_bias, qk_norm=True, sinks=sinks),
            mlp=moe(hidden, c.moe_intermediate_size, c.num_experts, c.num_experts_per_tok, shared_expert=shared)
            if sparse
            else mlp(hidden, c.intermediate_size),
        )

    return causal_lm(c, each(layer, zip(c.layer_types, c.is_sparse(), strict=True)))
