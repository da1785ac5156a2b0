"""One model under several conventions: totals side by side, and a sentence for every difference.

What a convention counts otherwise than `standard` is measured, not described: the knobs between the
two are turned one after the other, and each turn's change of the total is its difference. So the
differences of a row sum to the row's distance from `standard`, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flopcalc.batch import read_lengths
from flopcalc.conventions import CONVENTIONS, Convention, get_convention
from flopcalc.conventions.printed import printed_otherwise
from flopcalc.conventions.words import STEPS
from flopcalc.counting import FlopCounter, Phase
from flopcalc.errors import InvalidBatch
from flopcalc.training import Training

__all__ = ["Comparison", "Difference", "Row", "compare", "percent"]

BASELINE = "standard"


@dataclass(frozen=True)
class Difference:
    """One thing that a convention does otherwise, and what it adds to the total, in FLOPs."""

    words: str
    flops: int


@dataclass(frozen=True)
class Row:
    """A convention's total of the batch, beside that of `standard`."""

    convention: str
    flops: int
    standard_flops: int
    parts: Mapping[str, int]
    """FLOPs beyond those of `standard`, by kind of work; kinds that do not differ are left out."""
    differences: tuple[Difference, ...]
    """The largest first; their FLOPs sum to `flops - standard_flops`."""
    printed_otherwise: str | None = None
    """What the framework itself does with this model where that is not its rule, and why its number
    may differ from this one."""

    @property
    def ratio(self) -> float:
        """The total over that of `standard`."""
        return self.flops / self.standard_flops

    @property
    def sentences(self) -> tuple[str, ...]:
        """Each difference with its share of the total of `standard`.

        >>> row = Row("verl", 106, 100, {}, (Difference("counts the input embedding as a matmul", 6),))
        >>> row.sentences
        ('verl counts the input embedding as a matmul: +6.0 %',)
        """
        return tuple(
            f"{self.convention} {difference.words}: {percent(difference.flops, self.standard_flops)}"
            for difference in self.differences
        )


@dataclass(frozen=True)
class Comparison:
    """A batch of a model under several conventions."""

    model_type: str
    documents: int
    tokens: int
    phase: Phase
    rows: tuple[Row, ...]

    def __getitem__(self, convention: str) -> Row:
        return {row.convention: row for row in self.rows}[convention]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def compare(
    config: Any,
    seq_lens: Any,
    conventions: Iterable[str | Convention] | None = None,
    *,
    images: Any = None,
    audios: Any = None,
    phase: Phase = "train",
    training: Training | None = None,
) -> Comparison:
    """Count a batch under several conventions and say where they part.

    Args:
        config, seq_lens, images, audios, phase, training: as for `FlopCounter`.
        conventions: names or values; every preset where None.

    Raises InvalidBatch for a batch without tokens, and what `FlopCounter` raises.

    >>> comparison = compare({"model_type": "llama"}, [4096], ["verl"])
    >>> comparison["verl"].sentences[1]
    'verl counts the input embedding as a matmul: +1.7 %'
    """
    standard = CONVENTIONS[BASELINE]
    base = FlopCounter(config, standard, phase, training)
    model_type = getattr(base.tree, "model_type", None)
    chosen = [get_convention(convention) for convention in (CONVENTIONS if conventions is None else conventions)]

    def counter(convention: Convention) -> FlopCounter:
        return FlopCounter(base.tree, convention, phase, training)

    read = read_lengths(seq_lens)
    lengths = read if isinstance(read, list) else read.values  # an iterator would be empty the second time
    base_flops = base(lengths, images, audios)
    if not base_flops:
        raise InvalidBatch("seq_lens: found no tokens, expected at least 1 to compare conventions on")
    base_parts = base.by_kind(lengths, images, audios)

    def differences(convention: Convention) -> Iterator[Difference]:
        reached, flops, target = standard.for_model(model_type), base_flops, convention.for_model(model_type)
        for step in STEPS:
            turned = step.apply(reached, target)
            if turned is reached:
                continue
            words, before = step.words(reached, target), flops
            reached, flops = turned, counter(turned)(lengths, images, audios)
            if flops != before:
                yield Difference(words, flops - before)

    def row(convention: Convention) -> Row:
        parts = counter(convention).by_kind(lengths, images, audios)
        beyond = {kind: parts.get(kind, 0) - base_parts.get(kind, 0) for kind in {**base_parts, **parts}}
        return Row(
            convention.name,
            sum(parts.values()),
            base_flops,
            {kind: flops for kind, flops in beyond.items() if flops},
            tuple(sorted(differences(convention), key=lambda difference: -abs(difference.flops))),
            printed_otherwise(convention.name, model_type or ""),
        )

    return Comparison(model_type or "", len(lengths), sum(map(int, lengths)), phase, tuple(map(row, chosen)))


def percent(flops: int, of: int) -> str:
    """A share with its sign: one decimal, or two digits of a small one."""
    percent = 100 * flops / of
    return f"{percent:+.1f} %" if abs(percent) >= 0.1 else f"{percent:+.2g} %"
