"""Gemma: llama with heads wider than hidden_size / heads."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, decoder_layer, mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional, Full
from flopcalc.tree import Layers, Module


class GemmaConfig(Decoder):
    vocab_size: Size = 256000
    hidden_size: Size = 3072
    intermediate_size: Size = 24576
    num_hidden_layers: Count = 28
    num_attention_heads: Size = 16
    num_key_value_heads: Size = 16
    head_dim: Size = 256
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    use_bidirectional_attention: bool | None = None


@register("gemma", GemmaConfig)
def gemma(c: GemmaConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Bidirectional() if c.use_bidirectional_attention else Full(), bias=c.attention_bias),
        mlp=mlp(c.hidden_size, c.intermediate_size),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
