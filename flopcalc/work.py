"""Summed work of one token stream, evaluated on the lengths of a batch.

After the tree has been walked, a stream's FLOPs are `linear * sum(n) + square * sum(n*n)` plus, for
every other span, a coefficient times its summed pairs: a handful of sums per batch, exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import mul
from typing import Any, NamedTuple

from flopcalc.batch import Grid, Long
from flopcalc.errors import InvalidBatch
from flopcalc.spans import Bidirectional, Chunk, Full, Rule, Span
from flopcalc.tree import Stream

__all__ = ["Work"]

_INT64 = 2**63


class Work(NamedTuple):
    """The terms of one stream, summed: FLOPs = linear * sum(n) + square * sum(n*n)
    + sum over spans of coefficient * sum(pairs(n))."""

    linear: int
    square: int
    spans: tuple[tuple[int, Span, Rule], ...]

    @classmethod
    def of(cls, items: Iterable[tuple[Span | None, Rule, int]]) -> Work:
        """Gather (span, rule, FLOPs per token or pair): quadratic spans become coefficients of n*n
        and n."""
        linear = square = 0
        spans: dict[tuple[Span, Rule], int] = {}
        for span, rule, flops in items:
            if span is None:
                linear += flops
            elif type(span) is Bidirectional or (isinstance(span, Full) and rule != "exact"):
                square += flops
            elif isinstance(span, Full):  # n(n+1)/2
                square += flops // 2
                linear += flops // 2
            else:
                spans[span, rule] = spans.get((span, rule), 0) + flops
        return cls(linear, square, tuple((flops, span, rule) for (span, rule), flops in spans.items()))

    def total(self, lengths: list[int] | Long) -> int:
        """FLOPs of documents of these lengths, exact."""
        if isinstance(lengths, list):
            tokens = sum(lengths)
            if type(tokens) is not int:  # numpy integers among them, which would wrap at 64 bits
                return self.total(list(map(int, lengths)))
            flops = self.linear * tokens
            if self.square:
                flops += self.square * sum(map(mul, lengths, lengths))
            for coefficient, span, rule in self.spans:
                pairs = span.pairs
                flops += coefficient * sum([pairs(n, rule) for n in lengths])
            return flops
        import numpy as np

        values, longest = lengths
        if longest >= 2**31:  # pairs would leave 64 bits
            return self.total(values.tolist())
        flops = self.linear * int(values.sum())
        small = (longest + 1) ** 2 * len(values) < _INT64
        if self.square:
            squares = np.einsum("i,i", values, values) if small else _wide_sum(values * values)
            flops += self.square * int(squares)
        for coefficient, span, rule in self.spans:
            counted = span.pairs(values, rule, np.minimum)
            flops += coefficient * int(counted.sum() if small else _wide_sum(counted))
        return flops

    def each(self, lengths: list[int] | Long) -> Any:
        """FLOPs of each document: an int64 array, or one of Python ints where 64 bits are too few."""
        import numpy as np

        if isinstance(lengths, list):
            lengths = [int(n) for n in lengths]
            lengths = Long(np.array(lengths, dtype=object), max(lengths, default=0))
        values, longest = lengths
        bound = self.linear * longest + self.square * longest**2
        bound += sum(flops * span.pairs(longest, rule) for flops, span, rule in self.spans)
        values = values.astype(object if bound >= _INT64 or longest >= 2**31 else np.int64, copy=False)
        flops = self.linear * values
        if self.square:
            flops = flops + self.square * values * values
        for coefficient, span, rule in self.spans:
            flops = flops + coefficient * span.pairs(values, rule, np.minimum)
        return flops

    def beyond(self, cached: int, total: int, *, wide: bool) -> int:
        """FLOPs of the last tokens of a document of `total`, of which `cached` are computed already.

        Args:
            wide: whether each of them counts as reading as many keys as the last one, or the whole
                counts less its cached part.
        """
        new = total - cached
        flops = self.linear * new + self.square * (new * total if wide else total**2 - cached**2)
        for coefficient, span, rule in self.spans:
            if wide and rule in ("dense", "masked") and total:
                pairs = _wide_pairs(span, rule, cached, total)
            else:
                pairs = span.pairs(total, rule) - span.pairs(cached, rule)
            flops += coefficient * pairs
        return flops

    def total_images(self, grids: list[Grid], stream: Stream) -> int:
        """FLOPs of images, whose frames hold `stream.tokens(patches)` tokens each and attend within
        themselves, unless a span says otherwise."""
        flops = 0
        for grid in grids:
            grid = grid._replace(frames=min(grid.frames, 1)) if stream.pooled else grid
            tokens = stream.tokens(grid.patches) + _row_ends(grid, stream)
            flops += grid.frames * tokens * (self.linear + self.square * tokens)
            for coefficient, span, rule in self.spans:
                flops += coefficient * span.grid_pairs(grid, tokens, rule)
        return flops


def _row_ends(grid: Grid, stream: Stream) -> int:
    """Tokens that end the rows of a frame."""
    if stream.row is None:
        return 0
    if grid.height is None:
        raise InvalidBatch(
            f"images: found {grid.patches} patches, expected (frames, height, width) in patches: "
            f"this model ends each row of an image's tokens with one more"
        )
    return grid.height // stream.row


def _wide_pairs(span: Span, rule: Rule, cached: int, total: int) -> int:
    """Pairs of the queries after `cached`, each reading what the last one of its kind reads."""
    pairs = int(span.pairs(total, rule))
    if rule == "dense" and isinstance(span, Chunk):  # what the cached queries of each chunk would read
        begun = cached % span.size
        return pairs - (cached - begun) * span.size - begun * min(span.size, total - cached + begun)
    return (total - cached) * (pairs // total)


def _wide_sum(values: Any) -> int:
    """Sum of non-negative int64 values whose total may pass 2**63."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
