"""Hunyuan-3: grouped-query attention with normed heads; one dense layer, then routed and shared experts."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    Decoder,
    SparseLayers,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    dense_or_sparse,
    each,
)
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Module


class HYV3Config(Decoder, SparseLayers):
    leading_dense = 1

    vocab_size: Size = 120832
    intermediate_size: Size = 13312
    num_hidden_layers: Count = 80
    num_attention_heads: Size = 64
    num_key_value_heads: Size = 8
    head_dim: Size = 128
    attention_bias: bool = False
    mlp_bias: bool = False
    num_experts: Size = aliases("num_local_experts", "num_experts", default=192)
    num_experts_per_tok: Size = 8
    num_shared_experts: Count = 1
    moe_intermediate_size: Size = 1536

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_experts)


@register("hy_v3", HYV3Config)
def hy_v3(c: HYV3Config) -> Module:
    def layer(kind: str) -> Module:
        return decoder_layer(
            c.hidden_size,
            self_attn=attention(c, Full(), bias=c.attention_bias, qk_norm=True),
            mlp=dense_or_sparse(c, kind, c.num_experts, c.num_shared_experts, bias=c.mlp_bias),
        )

    return causal_lm(c, each(layer, c.mlp_layer_types))
