"""OLMo 2: norms after attention and MLP, norms over all query and key heads."""

from __future__ import annotations

from typing import Any

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, mlp
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.spans import Full, Span
from flopcalc.tree import Layers, Module, Norm


class Olmo2Config(Decoder):
    vocab_size: Size = 50304
    attention_bias: bool = False


def olmo2_layer(c: Any, span: Span) -> Module:
    return Module(
        self_attn=attention(c, span, bias=c.attention_bias, qk_norm="all_heads"),
        post_attention_layernorm=Norm(c.hidden_size),
        mlp=mlp(c.hidden_size, c.intermediate_size),
        post_feedforward_layernorm=Norm(c.hidden_size),
    )


@register("olmo2", Olmo2Config)
def olmo2(c: Olmo2Config) -> Module:
    return causal_lm(c, Layers([olmo2_layer(c, Full())] * c.num_hidden_layers))
