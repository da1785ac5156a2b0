"""Granite: llama in shape; its multipliers are scalars. Granite SWA: windows on three of four layers
and attention sinks."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, attention, causal_lm, decoder_layer, each, mlp
from flopcalc.architectures.llama import LlamaConfig, llama
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Module, Weight

register("granite", LlamaConfig)(llama)


class GraniteWindows(TypedDecoder):
    """Which layers slide, where a Granite config has no `layer_types`."""

    sliding_window: Count | None = 128
    attention_bias: bool = False

    def default_layer_types(self) -> list[str]:
        return ["sliding_attention" if i % 4 else "full_attention" for i in range(self.num_hidden_layers)]


class GraniteSwaConfig(GraniteWindows):
    vocab_size: Size = 100352
    hidden_size: Size = 2560
    intermediate_size: Size = 8192
    num_hidden_layers: Count = 24
    num_attention_heads: Size = 20
    num_key_value_heads: Size | None = 4
    tie_word_embeddings: bool = True
    mlp_bias: bool = False


@register("granite_swa", GraniteSwaConfig)
def granite_swa(c: GraniteSwaConfig) -> Module:
    def layer(kind: str) -> Module:
        return decoder_layer(
            c.hidden_size,
            self_attn=attention(c, c.span(kind), bias=c.attention_bias, sinks=Weight((c.num_attention_heads,))),
            mlp=mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
        )

    return causal_lm(c, each(layer, c.layer_types))
