"""Solar Open: routed and shared experts in every layer."""

from __future__ import annotations

from flopcalc.architectures.blocks import attention, causal_lm, check_top_k, decoder_layer, dense_or_sparse
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module


class SolarOpenConfig(Schema):
    vocab_size: Size = 196608
    hidden_size: Size = 4096
    num_hidden_layers: Count = 48
    num_attention_heads: Size = 64
    num_key_value_heads: Size = 8
    head_dim: Size = 128
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    moe_intermediate_size: Size = 1280
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=128)
    n_shared_experts: Count = 1
    num_experts_per_tok: Size = 8

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.n_routed_experts)


@register("solar_open", SolarOpenConfig)
def solar_open(c: SolarOpenConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), bias=c.attention_bias, o_bias=False),
        mlp=dense_or_sparse(c, "sparse", c.n_routed_experts, c.n_shared_experts),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
