"""Nemotron (dense): an MLP without gate, LayerNorms."""

from __future__ import annotations

from flopcalc.architectures.blocks import attention, causal_lm, decoder_layer, plain_mlp
from flopcalc.architectures.llama import LlamaConfig
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import LayerNorm, Layers, Module


class NemotronConfig(LlamaConfig):
    vocab_size: Size = 256000
    hidden_size: Size = 6144
    intermediate_size: Size = 24576
    num_attention_heads: Size = 48

    def derive(self) -> None:
        if self.num_key_value_heads is None:  # the class has no default and derives none
            raise ValueError("num_key_value_heads: found None, expected the number of key and value heads")
        super().derive()


@register("nemotron", NemotronConfig)
def nemotron(c: NemotronConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        norm=LayerNorm,
        self_attn=attention(c, Full(), bias=c.attention_bias),
        mlp=plain_mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers), norm=LayerNorm(c.hidden_size))
