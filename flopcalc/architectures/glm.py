"""GLM-4 of 2024: llama with biases on queries, keys and values, and a fused gated MLP."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, decoder_layer, fused_mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module


class GlmConfig(Decoder):
    vocab_size: Size = 151552
    intermediate_size: Size = 13696
    num_hidden_layers: Count = 40
    num_key_value_heads: Size | None = 2
    head_dim: Size | None = 128
    attention_bias: bool = True


@register("glm", GlmConfig)
def glm(c: GlmConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), bias=c.attention_bias, o_bias=False),
        mlp=fused_mlp(c.hidden_size, c.intermediate_size),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
