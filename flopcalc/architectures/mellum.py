"""Mellum: norms on the heads, windows and experts where the per-layer lists say so."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    SparseLayers,
    TypedDecoder,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    dense_or_sparse,
    each,
)
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.tree import Module


class MellumConfig(TypedDecoder, SparseLayers):
    vocab_size: Size = 98304
    hidden_size: Size = 2304
    intermediate_size: Size = 7168
    num_hidden_layers: Count = 28
    num_key_value_heads: Size = 4
    head_dim: Size = 128
    attention_bias: bool = False
    sliding_window: Count | None = 1024
    moe_intermediate_size: Size = 896
    num_local_experts: Size = aliases("num_experts", "num_local_experts", default=64)
    num_experts_per_tok: Size = 8

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_local_experts)


@register("mellum", MellumConfig)
def mellum(c: MellumConfig) -> Module:
    def layer(kind: tuple[str, str]) -> Module:
        attends, mlp_type = kind
        return decoder_layer(
            c.hidden_size,
            self_attn=attention(c, c.span(attends), bias=c.attention_bias, qk_norm=True),
            mlp=dense_or_sparse(c, mlp_type, c.num_local_experts, None),
        )

    return causal_lm(c, each(layer, zip(c.layer_types, c.mlp_layer_types, strict=True)))
