"""Cohere 2 (Command R7B), dense and MoE: attention and MLP side by side under one norm, three windows
to a full layer."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    SparseLayers,
    TypedDecoder,
    attention,
    causal_lm,
    check_top_k,
    each,
    every_nth_full,
    mlp,
    moe,
)
from flopcalc.config import Count, Size, legacy
from flopcalc.estimators import register
from flopcalc.tree import Module, Norm


class Cohere2Config(TypedDecoder):
    vocab_size: Size = 256000
    hidden_size: Size = 8192
    intermediate_size: Size = 22528
    num_hidden_layers: Count = 40
    num_attention_heads: Size = 64
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    sliding_window: Count | None = 4096
    sliding_window_pattern: Size = legacy(4)

    def default_layer_types(self) -> list[str]:
        return every_nth_full(self.num_hidden_layers, self.sliding_window_pattern)


@register("cohere2", Cohere2Config)
def cohere2(c: Cohere2Config) -> Module:
    def layer(kind: str) -> Module:
        return Module(
            input_layernorm=Norm(c.hidden_size),
            self_attn=attention(c, c.span(kind), bias=c.attention_bias),
            mlp=mlp(c.hidden_size, c.intermediate_size),
        ).reading(mlp="input_layernorm")

    return causal_lm(c, each(layer, c.layer_types))


class Cohere2MoeConfig(TypedDecoder, SparseLayers):
    vocab_size: Size = 256000
    hidden_size: Size = 8192
    intermediate_size: Size = 22528
    num_hidden_layers: Count = 40
    num_attention_heads: Size = 64
    head_dim: Size = 128
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    sliding_window: Count | None = 4096
    sliding_window_pattern: Size = 4
    num_experts: Size = 8
    num_experts_per_tok: Size = 2
    num_shared_experts: Count = 0
    prefix_dense_intermediate_size: Size | None = None
    prefix_dense_sliding_window_pattern: Size = 1
    first_k_dense_replace: Count = legacy(0)

    def default_layer_types(self) -> list[str]:
        dense = self.first_k_dense_replace
        return every_nth_full(dense, self.prefix_dense_sliding_window_pattern) + every_nth_full(
            self.num_hidden_layers - dense, self.sliding_window_pattern
        )

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_experts)


@register("cohere2_moe", Cohere2MoeConfig)
def cohere2_moe(c: Cohere2MoeConfig) -> Module:
    hidden, width, shared = c.hidden_size, c.intermediate_size, c.num_shared_experts

    def layer(kind: tuple[str, str]) -> Module:
        attends, mlp_type = kind
        return Module(
            input_layernorm=Norm(hidden),
            self_attn=attention(c, c.span(attends), bias=c.attention_bias),
            mlp=mlp(hidden, c.prefix_dense_intermediate_size or width)
            if mlp_type == "dense"
            else moe(
                hidden,
                width,
                c.num_experts,
                c.num_experts_per_tok,
                shared_experts=mlp(hidden, width * shared) if shared else None,
            ),
        ).reading(mlp="input_layernorm")

    return causal_lm(c, each(layer, zip(c.layer_types, c.mlp_layer_types, strict=True)))
