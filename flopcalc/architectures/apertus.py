"""Apertus: an MLP without gate whose activation xIELU has two parameters, norms on the heads."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, plain_mlp
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module, Norm, Weight


class ApertusConfig(Decoder):
    vocab_size: Size = 131072
    intermediate_size: Size = 14336
    hidden_act: str = "xielu"
    attention_bias: bool = False


@register("apertus", ApertusConfig)
def apertus(c: ApertusConfig) -> Module:
    xielu = Module(alpha_p=Weight((1,)), alpha_n=Weight((1,))) if c.hidden_act == "xielu" else None
    layer = Module(
        attention_layernorm=Norm(c.hidden_size),
        self_attn=attention(c, Full(), bias=c.attention_bias, qk_norm=True),
        feedforward_layernorm=Norm(c.hidden_size),
        mlp=plain_mlp(c.hidden_size, c.intermediate_size, act_fn=xielu),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
