"""OLMo (1): llama whose norms have no parameters."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, mlp
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module


class OlmoConfig(Decoder):
    vocab_size: Size = 50304
    attention_bias: bool = False


@register("olmo", OlmoConfig)
def olmo(c: OlmoConfig) -> Module:
    layer = Module(self_attn=attention(c, Full(), bias=c.attention_bias), mlp=mlp(c.hidden_size, c.intermediate_size))
    return causal_lm(c, Layers([layer] * c.num_hidden_layers), norm=None)
