"""Helium: llama whose output projection never has a bias."""

from __future__ import annotations

from flopcalc.architectures.blocks import attention, causal_lm, decoder_layer, mlp
from flopcalc.architectures.llama import LlamaConfig
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module


class HeliumConfig(LlamaConfig):
    vocab_size: Size = 48000
    hidden_size: Size = 2560
    intermediate_size: Size = 7040
    num_hidden_layers: Count = 24
    num_attention_heads: Size = 20
    num_key_value_heads: Size = 20
    head_dim: Size = 128

    def derive(self) -> None:
        super().derive()
        if self.num_attention_heads * self.head_dim != self.hidden_size:  # o_proj is square
            expected = f"hidden_size / num_attention_heads = {self.hidden_size / self.num_attention_heads:g}"
            raise ValueError(f"head_dim: found {self.head_dim}, expected {expected}")


@register("helium", HeliumConfig)
def helium(c: HeliumConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), bias=c.attention_bias, o_bias=False),
        mlp=mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
