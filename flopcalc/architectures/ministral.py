"""Ministral: mistral with a window, or none, on each layer."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, attention, causal_lm, decoder_layer, each, mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Module


class MinistralConfig(TypedDecoder):
    intermediate_size: Size = 14336
    num_key_value_heads: Size | None = 8
    sliding_window: Count | None = 4096

    def default_layer_types(self) -> list[str]:
        kind = "full_attention" if self.sliding_window is None else "sliding_attention"
        return [kind] * self.num_hidden_layers

    def derive(self) -> None:
        if self.head_dim is None:  # the class has no default and derives none
            raise ValueError("head_dim: found None, expected the width of a head")
        super().derive()


@register("ministral", MinistralConfig)
def ministral(c: MinistralConfig) -> Module:
    def layer(kind: str) -> Module:
        return decoder_layer(
            c.hidden_size, self_attn=attention(c, c.span(kind)), mlp=mlp(c.hidden_size, c.intermediate_size)
        )

    return causal_lm(c, each(layer, c.layer_types))
