"""Persimmon: query, key and value in one projection, an MLP without gate, LayerNorms on the heads."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, causal_lm, check_multiple, decoder_layer, plain_mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, LayerNorm, Layers, Linear, Module


class PersimmonConfig(Decoder):
    vocab_size: Size = 262144
    intermediate_size: Size = 16384
    num_hidden_layers: Count = 36
    num_attention_heads: Size = 64
    qk_layernorm: bool = True

    def derive(self) -> None:
        super().derive()
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        self.head_dim = self.hidden_size // self.num_attention_heads


@register("persimmon", PersimmonConfig)
def persimmon(c: PersimmonConfig) -> Module:
    hidden, heads, dim = c.hidden_size, c.num_attention_heads, c.head_dim
    head_norm = LayerNorm(dim) if c.qk_layernorm else None
    layer = decoder_layer(
        hidden,
        norm=LayerNorm,
        self_attn=Module(
            query_key_value=Linear(hidden, 3 * hidden, bias=True),
            q_layernorm=head_norm,
            k_layernorm=head_norm,
            core=Attention(heads, dim, dim, Full()),
            dense=Linear(hidden, hidden, bias=True),
        ).reading(q_layernorm="query_key_value", k_layernorm="query_key_value"),
        mlp=plain_mlp(hidden, c.intermediate_size, bias=True, names=("dense_h_to_4h", "dense_4h_to_h")),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers), norm=None, final_layernorm=LayerNorm(hidden))
