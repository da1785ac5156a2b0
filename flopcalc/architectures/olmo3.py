"""OLMo 3: OLMo 2 with a sliding window on three of four layers."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, causal_lm, each, every_nth_full
from flopcalc.architectures.olmo2 import Olmo2Config, olmo2_layer
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Module


class Olmo3Config(TypedDecoder, Olmo2Config):
    vocab_size: Size = 50304
    sliding_window: Count | None = 4096

    def default_layer_types(self) -> list[str]:
        return every_nth_full(self.num_hidden_layers, 4)


@register("olmo3", Olmo3Config)
def olmo3(c: Olmo3Config) -> Module:
    return causal_lm(c, each(lambda kind: olmo2_layer(c, c.span(kind)), c.layer_types))
