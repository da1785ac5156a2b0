"""Jais 2: an MLP without gate, LayerNorms, biases everywhere."""

from __future__ import annotations

from flopcalc.architectures.blocks import attention, causal_lm, decoder_layer, plain_mlp
from flopcalc.architectures.llama import LlamaConfig
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import LayerNorm, Layers, Module


class Jais2Config(LlamaConfig):
    vocab_size: Size = 150272
    hidden_size: Size = 3328
    intermediate_size: Size = 26624
    num_attention_heads: Size = 26
    attention_bias: bool = True
    mlp_bias: bool = True


@register("jais2", Jais2Config)
def jais2(c: Jais2Config) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        norm=LayerNorm,
        self_attn=attention(c, Full(), bias=c.attention_bias),
        mlp=plain_mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers), norm=LayerNorm(c.hidden_size))
