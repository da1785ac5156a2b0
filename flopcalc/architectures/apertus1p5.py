"""Apertus 1.5: Apertus with a head that may score fewer tokens than the input knows."""

from __future__ import annotations

from flopcalc.architectures.apertus import ApertusConfig, apertus
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module


class Apertus1p5TextConfig(ApertusConfig):
    vocab_size: Size = 266752
    output_vocab_size: Size | None = None

    def derive(self) -> None:
        super().derive()
        if self.output_vocab_size == self.vocab_size:
            self.output_vocab_size = None
        if (self.output_vocab_size or 0) > self.vocab_size:
            raise ValueError(
                f"output_vocab_size: found {self.output_vocab_size}, expected at most vocab_size = {self.vocab_size}"
            )


@register("apertus1p5_text", Apertus1p5TextConfig)
def apertus1p5_text(c: Apertus1p5TextConfig) -> Module:
    tree = apertus(c)
    if c.output_vocab_size is None:
        return tree
    return Module(model=dict(tree.children)["model"], lm_head=Linear(c.hidden_size, c.output_vocab_size, kind="head"))
