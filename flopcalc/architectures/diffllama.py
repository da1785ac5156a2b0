"""DiffLlama: differential attention. Every query reads two halves of the values, which its eager code
weighs by scores computed twice, and one result is subtracted from the other."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, decoder_layer, mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Layers, Module, Weight


class DiffLlamaConfig(Decoder):
    hidden_size: Size = 2048
    intermediate_size: Size = 8192
    num_hidden_layers: Count = 16
    attention_bias: bool = False

    def derive(self) -> None:
        super().derive()
        if self.num_key_value_heads % 2:
            raise ValueError(f"num_key_value_heads: found {self.num_key_value_heads}, expected an even number")


@register("diffllama", DiffLlamaConfig)
def diffllama(c: DiffLlamaConfig) -> Module:
    heads, dim = c.num_attention_heads, c.head_dim
    lambdas = {f"lambda_{name}": Weight((dim,)) for name in ("q1", "k1", "q2", "k2")}
    subtracted = {"subtracted_core": Attention(heads, dim, dim, Full()), **lambdas}
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), bias=c.attention_bias, after_core=subtracted),
        mlp=mlp(c.hidden_size, c.intermediate_size),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
