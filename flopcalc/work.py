"""Summed work of one token stream, evaluated on the lengths of a batch.

After the tree has been walked, a stream's FLOPs are `linear * sum(n) + square * sum(n*n)` plus, for
every other span, a coefficient times its summed pairs: a handful of sums per batch, exact.
"""

from __future__ import annotations

from operator import mul
from typing import Any, NamedTuple

import numpy as np

from flopcalc.batch import Grid
from flopcalc.conventions import Convention
from flopcalc.spans import Bidirectional, Chunk, Full, Rule, Span, Window

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
            if convention.window == "ignore" and isinstance(span, (Window, Chunk)):
                span = Full()
            if convention.pairs == "half" and not isinstance(span, (Bidirectional, type(None))):
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

    def total(self, lengths: Any) -> int:
        """FLOPs of documents of these lengths (a checked list or int64 array), exact."""
        if type(lengths) is list:
            flops = self.linear * sum(lengths)
            if self.square:
                flops += self.square * sum(map(mul, lengths, lengths))
            for coefficient, span, rule in self.spans:
                pairs = span.pairs
                flops += coefficient * sum([pairs(n, rule) for n in lengths])
            return flops
        longest = int(lengths.max())
        if longest >= 2**31:  # pairs would leave 64 bits
            return self.total(lengths.tolist())
        flops = self.linear * int(lengths.sum())
        small = longest * longest * len(lengths) < _INT64
        if self.square:
            squares = np.dot(lengths, lengths) if small else _wide_sum(lengths * lengths)
            flops += self.square * int(squares)
        for coefficient, span, rule in self.spans:
            counted = span.pairs(lengths, rule, np.minimum)
            flops += coefficient * int(counted.sum() if small else _wide_sum(counted))
        return flops

    def each(self, lengths: Any) -> Any:
        """FLOPs of each document: an int64 array, or one of Python ints where 64 bits are too few."""
        array = np.asarray(lengths, dtype=np.int64 if len(lengths) == 0 else None)
        longest = int(array.max()) if len(array) else 0
        bound = self.linear * longest + (self.square + sum(flops for flops, _, _ in self.spans)) * longest**2
        if bound >= _INT64 or longest >= 2**31:
            array = array.astype(object)
        flops = self.linear * array
        if self.square:
            flops = flops + self.square * array * array
        for coefficient, span, rule in self.spans:
            flops = flops + coefficient * span.pairs(array, rule, np.minimum)
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
