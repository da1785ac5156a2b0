"""(tree, batch, convention, training) to FLOPs. The only place with FLOP arithmetic.

    work(document) = sum over weights of 2 * active_params * tokens * passes
                   + sum over mixers of  c * pairs(span, n) * passes

A multiply-add is 2 FLOPs. A mixer's c is 2 * heads * (qk_dim + v_dim) for attention (one product
for the scores, one for the values), 2 * heads * dim for indexer scores, and a convention's factor
times the state's size for a recurrence. Training runs three passes over everything (forward, input
gradient, weight gradient; attention's backward is twice its forward), except what runs without
gradient. Softmax, norms, activations, rotary embeddings and the optimizer are never counted.

Each span of a model has one integer coefficient, so the tree is walked once, at construction, and a
batch costs a few sums over its lengths. All totals are exact Python integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from operator import mul
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from flopcalc.batch import read_lengths
from flopcalc.conventions import Convention, get_convention
from flopcalc.errors import InvalidBatch, InvalidOption
from flopcalc.estimators import describe
from flopcalc.spans import Bidirectional, Chunk, Full, Rule, Span, Window
from flopcalc.tree import (
    Attention,
    DeltaRule,
    IndexScores,
    LinearAttention,
    Mamba,
    Mamba2,
    Mixer,
    Node,
    Stream,
    StreamMix,
    Visit,
    walk,
)

__all__ = ["Breakdown", "FlopCounter", "Phase", "estimate_flops"]

Phase = Literal["train", "forward"]

_INT64 = 2**63


class Term(NamedTuple):
    """FLOPs of one leaf: `flops` per token of the stream, or per pair of `span` within it."""

    path: str
    kind: str
    stream: Stream
    span: Span | None
    flops: int


def terms(tree: Node, convention: Convention, phase: Phase, *, expand: bool = False) -> Iterator[Term]:
    """The work of every leaf, each convention knob applied; equal layers at once unless `expand`."""
    for visit in walk(tree, expand=expand):
        if isinstance(visit.leaf, Mixer):
            passes = _passes(phase, visit.grad or convention.indexer_scores == "trained")
            yield from _mixer_terms(visit, convention, passes)
            continue
        passes = _passes(phase, visit.grad or convention.indexer_weights == "trained")
        for tensor in visit.tensors:
            if tensor.kind in convention.weights:
                flops = 2 * visit.active(prod(tensor.shape)) * passes * visit.times
                path = ".".join(filter(None, (visit.path, tensor.name)))
                yield Term(path, tensor.kind, visit.stream, None, flops)


def _passes(phase: Phase, grad: bool) -> int:
    return 3 if phase == "train" and grad else 1


def _mixer_terms(visit: Visit, convention: Convention, passes: int) -> Iterator[Term]:
    scale = passes * visit.times

    def term(kind: str, flops: int, span: Span | None = None) -> Term:
        return Term(visit.path, kind, visit.stream, span, flops * scale)

    match visit.leaf:
        case Attention(heads, qk_dim, v_dim, span):
            yield from (term("attention", 2 * heads * (qk_dim + v_dim), part) for part in span.parts())
        case IndexScores(heads, dim, span):
            yield from (term("index_scores", 2 * heads * dim, part) for part in span.parts())
        case DeltaRule(heads, key_dim, value_dim):
            yield term("delta_rule", convention.delta_rule * heads * key_dim * value_dim)
        case Mamba2(heads, head_dim, state):
            yield term("mamba2", convention.mamba2 * heads * head_dim * state)
        case Mamba(channels, state):
            yield term("mamba", convention.mamba * channels * state)
        case LinearAttention(heads, key_dim, value_dim):
            yield term("linear_attention", convention.linear_attention * heads * key_dim * value_dim)
        case StreamMix(streams, width):
            yield term("stream_mix", 2 * streams * streams * width if convention.stream_mix else 0)
        case leaf:
            raise TypeError(f"no counting rule for {leaf!r}")


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


def _wide_sum(values: Any) -> int:
    """Sum of non-negative int64 values whose total may pass 2**63."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


class FlopCounter:
    """FLOPs of a model for batches of documents; the config is read once, here.

    Args:
        config: a dict, a transformers config object, a path to config.json or its folder, a bundled
            name, a hub id, or a tree that `describe` gave.
        convention: a name in `CONVENTIONS` or a `Convention`.
        phase: `train` (forward and backward) or `forward`.

    Raises UnsupportedModel, InvalidConfig or InvalidOption.

    >>> counter = FlopCounter({"model_type": "llama"})
    >>> counter([256] * 4) == counter([256]) * 4
    True
    """

    def __init__(
        self, config: Any, convention: str | Convention = "standard", phase: Phase = "train", training: Any = None
    ) -> None:
        self.convention = get_convention(convention)
        if phase not in get_args(Phase):
            raise InvalidOption(f"phase: found {phase!r}, expected 'train' or 'forward'")
        self.phase: Phase = phase
        self.tree = config if isinstance(config, Node) else describe(config)
        gathered: dict[Stream, list[tuple[Span | None, int]]] = {Stream(): []}
        for term in terms(self.tree, self.convention, phase):
            gathered.setdefault(term.stream, []).append((term.span, term.flops))
        self._work = {stream: Work.of(items, self.convention) for stream, items in gathered.items()}
        self._text = self._work[Stream()]

    def __call__(self, seq_lens: Any, images: Any = None) -> int:
        """Total FLOPs of documents of these lengths (tokens each), exact.

        Raises InvalidBatch for lengths that are not whole numbers >= 0.
        """
        if images is not None:
            raise InvalidBatch("images: this model has no image tower")
        return self._text.total(read_lengths(seq_lens))

    def flops_per_token(self, seq_len: int) -> float:
        """FLOPs per token of one document of `seq_len` tokens."""
        if seq_len == 0:
            raise InvalidBatch("seq_len: found 0, expected at least 1 token")
        return self([seq_len]) / seq_len

    def per_document(self, seq_lens: Any) -> Any:
        """FLOPs of each document, as an int64 array of the same length; as an array of Python ints
        where a document passes 2**63 FLOPs. Its sum is `counter(seq_lens)`."""
        return self._text.each(read_lengths(seq_lens))

    def breakdown(self, seq_lens: Any, images: Any = None) -> Breakdown:
        """The total's parts, by module and by kind."""
        if images is not None:
            raise InvalidBatch("images: this model has no image tower")
        lengths = read_lengths(seq_lens)
        amounts: dict[tuple[Stream, Span | None], int] = {}
        rows = []
        for term in terms(self.tree, self.convention, self.phase, expand=True):
            key = (term.stream, term.span)
            if key not in amounts:  # twice the pairs, so that half of them stays whole
                amounts[key] = Work.of([(term.span, 2)], self.convention).total(lengths)
            rows.append((term.path, term.kind, term.flops * amounts[key] // 2))
        return Breakdown(rows)


class Breakdown:
    """Parts that sum exactly to the total, in fvcore's words."""

    def __init__(self, rows: list[tuple[str, str, int]]) -> None:
        self.rows = rows
        """(path, kind, FLOPs) of every parameter and mixer."""

    def total(self) -> int:
        """FLOPs of the batch; equal to the counter's own number."""
        return sum(flops for _, _, flops in self.rows)

    def by_kind(self) -> dict[str, int]:
        """FLOPs of each kind of work (linear, experts, head, attention, ...)."""
        kinds: dict[str, int] = {}
        for _, kind, flops in self.rows:
            kinds[kind] = kinds.get(kind, 0) + flops
        return kinds

    def by_module(self) -> dict[str, int]:
        """FLOPs of each module and everything under it; the whole model is ""."""
        modules: dict[str, int] = {"": 0}
        for path, _, flops in self.rows:
            parts = path.split(".")
            for depth in range(len(parts) + 1):
                name = ".".join(parts[:depth])
                modules[name] = modules.get(name, 0) + flops
        return modules


def estimate_flops(
    config: Any,
    seq_lens: Any,
    *,
    images: Any = None,
    convention: str | Convention = "standard",
    phase: Phase = "train",
    training: Any = None,
) -> int:
    """FLOPs of training (or of a forward pass) on documents of these lengths, exact.

    The arguments are those of `FlopCounter`; build one when the model is counted often.

    >>> estimate_flops({"model_type": "llama"}, [])
    0
    """
    return FlopCounter(config, convention, phase, training)(seq_lens, images)
