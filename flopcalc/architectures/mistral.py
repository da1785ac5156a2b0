"""Mistral: llama without biases, one sliding window on all layers or none."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, decoder_layer, mlp, window
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Layers, Module


class MistralConfig(Decoder):
    intermediate_size: Size = 14336
    num_key_value_heads: Size | None = 8
    sliding_window: Count | None = 4096


@register("mistral", MistralConfig)
def mistral(c: MistralConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, window(c.sliding_window)),
        mlp=mlp(c.hidden_size, c.intermediate_size),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
