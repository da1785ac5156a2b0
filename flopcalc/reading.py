"""How a convention reads a tree: which parameters count, which tokens meet them, which pairs attend."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from flopcalc.conventions import Convention
from flopcalc.errors import UnsupportedModel
from flopcalc.spans import (
    Bidirectional,
    BidirectionalWindow,
    Chunk,
    Compressed,
    Full,
    GridWindow,
    OwnPatch,
    Rule,
    Span,
    TopK,
    Window,
)
from flopcalc.tree import NEVER, TEXT, Kind, Norm, Stream, Tensor, Visit

__all__ = ["SHOWN_AS", "Pairs", "counted_params", "counted_stream", "read_pairs"]

SHOWN_AS: dict[Kind, Kind] = {
    "gated_query": "linear",
    "output_gate": "linear",
    "patch_embedding": "linear",
    "mtp_projection": "linear",
    "head_norm": "norm",
    "latent_norm": "norm",
    "final_norm": "norm",
    "mtp_norm": "norm",
    "scan_conv": "conv",
    "lookup": "embedding",
}
"""Kinds that a breakdown shows as another."""


def counted_params(visit: Visit, tensor: Tensor, convention: Convention) -> int:
    """The parameters of a tensor that each token multiplies through, as a convention has it."""
    numel, kind = prod(tensor.shape), tensor.kind
    if kind not in convention.weights or (kind == "head" and tensor.tied_to is not None and not convention.tied_head):
        return 0
    if kind == "head" and convention.mtp == "layer" and _in_mtp(visit):
        return 0
    if kind == "gated_query" and "output_gate" not in convention.weights:
        numel //= 2
    elif kind == "head" and convention.head_multiple > 1:
        vocab, rest = tensor.shape[0], numel // tensor.shape[0]
        numel = -(-vocab // convention.head_multiple) * convention.head_multiple * rest
    elif kind == "head_norm" and convention.head_norms == "each_head" and isinstance(visit.leaf, Norm):
        numel *= visit.leaf.vectors
    return numel if convention.experts == "all" else visit.active(numel)


def counted_stream(visit: Visit, convention: Convention) -> Stream | None:
    """The tokens that meet a leaf; None where it does not count. Raises UnsupportedModel where no one knows."""
    stream = visit.stream
    if stream.unknown is not None:
        raise UnsupportedModel(f"{stream.unknown} (asked for by {visit.path})")
    if stream.source == "text":
        return None if convention.mtp == "none" and _in_mtp(visit) else stream
    if stream == NEVER:
        return None
    if convention.towers == "text_tokens":
        return TEXT
    if convention.towers == "none":
        return None
    return Stream(stream.source) if convention.merger_rows == "patches" and stream.every > 1 else stream


def _in_mtp(visit: Visit) -> bool:
    return visit.path.startswith("mtp.")  # see `mtp.py`


class Pairs(NamedTuple):
    """The pairs that count: those of `span` by `rule`, divided by `divisor`; none where it is 0."""

    span: Span
    rule: Rule
    divisor: int


_HALVES: dict[str, Rule] = {"half": "dense", "continuous": "continuous", "beyond": "beyond"}
"""Rules whose pairs are half of those that a span gives by this one."""


def read_pairs(span: Span, convention: Convention, *, indexer: bool = False) -> Pairs:
    """The pairs of a plain span (see `Span.parts`): an attention core's, or an indexer's."""
    pairs: str = convention.pairs
    if indexer and convention.indexer_pairs != "follow":
        pairs = convention.indexer_pairs
    if pairs == "none":
        return Pairs(span, "dense", 0)
    if isinstance(span, (Bidirectional, BidirectionalWindow, GridWindow, OwnPatch)):  # no causal half to leave out
        ignored = isinstance(span, BidirectionalWindow) and convention.window == "ignore"
        return Pairs(Bidirectional() if ignored else span, _rule(pairs), 1)
    limit: str = "follow" if indexer else _limit(span, convention)
    if limit == "ignore":
        if isinstance(span, Compressed):  # its entries stand for keys that full attention reads itself
            return Pairs(span, "dense", 0)
        span = Full()
    rule = pairs if limit in ("follow", "ignore") else limit
    return Pairs(span, _rule(rule), 2 if rule in _HALVES else 1)


def _limit(span: Span, convention: Convention) -> str:
    if isinstance(span, (TopK, Compressed)):
        return convention.sparse
    if isinstance(span, Window):
        return convention.window
    return convention.chunk if isinstance(span, Chunk) else "follow"


def _rule(rule: str) -> Rule:
    return _HALVES.get(rule, rule)  # type: ignore[arg-type]  # the rest are rules of spans
