"""Arcee: llama with an MLP without gate."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, decoder_layer, plain_mlp
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module


class ArceeConfig(Decoder):
    hidden_size: Size = 2560
    intermediate_size: Size = 18432
    attention_bias: bool = False
    mlp_bias: bool = False


@register("arcee", ArceeConfig)
def arcee(c: ArceeConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), bias=c.attention_bias),
        mlp=plain_mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
