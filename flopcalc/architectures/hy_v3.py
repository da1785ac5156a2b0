"""Hunyuan-3: grouped-query attention with normed heads; one dense layer, then routed and shared experts."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    Decoder,
    attention,
    causal_lm,
    check_top_k,
    check_types,
    decoder_layer,
    dense_or_sparse,
    each,
    leading_dense,
)
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Module


class HYV3Config(Decoder):
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
    mlp_layer_types: list[str] | None = None

    def derive(self) -> None:
        super().derive()
        if self.mlp_layer_types is None:
            self.mlp_layer_types = leading_dense(self.num_hidden_layers, 1)
        check_types("mlp_layer_types", self.mlp_layer_types, self.num_hidden_layers, ("dense", "sparse"))
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
