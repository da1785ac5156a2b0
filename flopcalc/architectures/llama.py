"""Llama: grouped-query attention and a gated MLP."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, decoder_layer, mlp
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module


class LlamaConfig(Decoder):
    attention_bias: bool = False
    mlp_bias: bool = False


@register("llama", LlamaConfig)
def llama(c: LlamaConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), bias=c.attention_bias),
        mlp=mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
