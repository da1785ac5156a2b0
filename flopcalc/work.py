"""Summed work of one token stream, evaluated on the lengths of a batch.

After the tree has been walked, a stream's FLOPs are `linear * sum(n) + square * sum(n*n)` plus, for
every other span, a coefficient times its summed pairs: a handful of sums per batch, exact.
"""

from __future__ import annotations

from operator import mul
from typing import Any, NamedTuple

from flopcalc.batch import Grid, Long
from flopcalc.conventions import Convention
from flopcalc.spans import Bidirectional, BidirectionalWindow, Chunk, Full, Rule, Span, Window

__all__ = ["Work"]

_INT64 = 2**63


class Work(NamedTuple):
    """The terms of one stream, summed: FLOPs = linear * sum(n) + square * sum(n*n)
    + sum over spans of coefficient * sum(pairs(n))."""

    linear: int
    square: int
    spans: tuple[tuple[int, Span, Rule], ...]

    @classmethod
    def of(cls, items: list[tuple[Span | None, int]], convention: Convention) -> Work:
        """Gather (span, FLOPs per token or pair): quadratic spans become coefficients of n*n and n."""
        linear = square = 0
        spans: dict[Span, int] = {}
        rule: Rule = "dense" if convention.pairs == "half" else convention.pairs
        for span, flops in items:
            if convention.window == "ignore" and isinstance(span, (Window, Chunk, BidirectionalWindow)):
                span = Bidirectional() if isinstance(span, BidirectionalWindow) else Full()
            if convention.pairs == "half" and not isinstance(span, (Bidirectional, BidirectionalWindow, type(None))):
                flops //= 2  # exact: 2 * heads * dims is even
            if span is None:
                linear += flops
            elif isinstance(span, Bidirectional) or (isinstance(span, Full) and rule != "exact"):
                square += flops
            elif isinstance(span, Full):  # n(n+1)/2
                square += flops // 2
                linear += flops // 2
            else:
                spans[span] = spans.get(span, 0) + flops
        return cls(linear, square, tuple((flops, span, rule) for span, flops in spans.items()))

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
        small = longest * longest * len(values) < _INT64
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
        bound = self.linear * longest + (self.square + sum(flops for flops, _, _ in self.spans)) * longest**2
        values = values.astype(object if bound >= _INT64 or longest >= 2**31 else np.int64, copy=False)
        flops = self.linear * values
        if self.square:
            flops = flops + self.square * values * values
        for coefficient, span, rule in self.spans:
            flops = flops + coefficient * span.pairs(values, rule, np.minimum)
        return flops

    def total_images(self, grids: list[Grid], every: int, extra: int) -> int:
        """FLOPs of images, whose frames hold `patches // every + extra` tokens each and attend
        within themselves, unless a span says otherwise."""
        flops = 0
        for grid in grids:
            tokens = grid.patches // every + extra
            flops += grid.frames * tokens * (self.linear + self.square * tokens)
            for coefficient, span, rule in self.spans:
                flops += coefficient * span.grid_pairs(grid, tokens, rule)
        return flops


def _wide_sum(values: Any) -> int:
    """Sum of non-negative int64 values whose total may pass 2**63."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
