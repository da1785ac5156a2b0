"""Dealing work into bins: the longest first, each to the least loaded bin (LPT, Graham 1969), in
rounds of numpy.

Work is dealt in descending order. Once the loads are sorted, a whole round can be dealt: the i-th item
goes to the i-th lightest bin, as long as that bin is not heavier than the lightest one would be with
the same item. Loads carry their bin's number in the low bits, so that one sort of plain integers
orders both: no floats and no unstable ties, hence the same plan on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from flopcalc.packing.pricing import descends, stable_order

__all__ = ["deal", "deal_under_cap", "fill"]

_ROUNDS = 16  # of each fold, on the way up and down
_LARGE = 16  # under a cap, an item is large above this part of it;
_LIKE = 0.9  # while bins are full for them, a round deals large items of like size only,
_LEFT = 8  # and small ones to as many bins as this part of the items left,
_HASTE = 1, 3  # or to the nearest of so many quarters of the open bins


def deal(work: Any, bins: int, *, evenly: bool = False, loads: Any = 0) -> Any:
    """The bin of each item of an int64 array of positive numbers, onto `loads` that the bins hold
    already. With as many items as bins or more, no bin of none stays empty; `evenly`, all get as
    many, if the items allow.

    Where a bin gets many items, those in the middle of the order are folded first: 2, 4, 8, ... of
    them, a large with a small one, are dealt as one. The first items stay single, since they are
    large; and so do the last, since they level what the others left.
    """
    if not descends(work):
        order, chosen = stable_order(work, descending=True), np.empty(len(work), np.int64)
        chosen[order] = deal(work[order], bins, evenly=evenly, loads=loads)
        return chosen
    bits = bins.bit_length()
    loads = (loads << bits) | np.arange(bins)
    chosen = np.empty(len(work), np.int64)
    for start, stop, fold in _folds(len(work), bins):
        items, places = _folded(work[start:stop], bins, fold)
        items = items << bits
        at, into = 0, np.empty(len(items), np.int64)
        while at < len(items):
            loads.sort()
            window = items[at : at + bins]
            dealt = len(window)
            if not evenly:
                dealt = int((loads[:dealt] - window).searchsorted(loads[0], "right"))
            into[at : at + dealt] = loads[:dealt]
            loads[:dealt] += window[:dealt]
            at += dealt
        into &= (1 << bits) - 1
        _unfold(into, places, chosen[start:stop], bins, fold)
    return chosen


def _folds(num: int, bins: int) -> Iterator[tuple[int, int, int]]:
    """(start, stop, items folded into one), from the largest items to the smallest."""
    blocks, rest = divmod(num, bins)
    ramp, fold = [], 1
    while blocks > 2 * _ROUNDS * fold:
        ramp.append((_ROUNDS * fold, fold))
        blocks -= 2 * _ROUNDS * fold
        fold *= 2
    middle = (blocks // fold * fold, fold)
    tail = (blocks % fold, 1)
    start = 0
    for length, size in (*ramp, middle, *reversed(ramp), tail):
        if length:
            yield start, start + length * bins, size
            start += length * bins
    if rest:
        yield start, num, 1


def _folded(work: Any, bins: int, fold: int) -> tuple[Any, Any]:
    """Items of `fold` blocks of `bins` each, descending within their round, and their places if the
    rounds were not sorted."""
    if fold == 1:
        return work, None
    blocks = work.reshape(-1, fold, bins)
    summed = blocks[:, ::2].sum(axis=1) + blocks[:, 1::2, ::-1].sum(axis=1)
    bits = bins.bit_length()
    keys = (summed << bits) | np.arange(bins)
    keys.sort(axis=1)
    keys = keys[:, ::-1]
    places = (keys & ((1 << bits) - 1)) + np.arange(0, summed.size, bins)[:, None]
    return (keys >> bits).ravel(), places.ravel()


def _unfold(into: Any, places: Any, chosen: Any, bins: int, fold: int) -> None:
    """Writes the bins of folded items to all that they were folded from."""
    if fold == 1:
        chosen[:] = into
        return
    by_column = np.empty_like(into)
    by_column[places] = into
    by_column, chosen = by_column.reshape(-1, 1, bins), chosen.reshape(-1, fold, bins)
    chosen[:, ::2] = by_column
    chosen[:, 1::2] = by_column[:, :, ::-1]


def deal_under_cap(work: Any, tokens: Any, loads: Any, cap: int) -> tuple[Any, Any] | None:
    """As `deal`, item by item, onto `loads` that the bins hold already, and with at most `cap` tokens
    in a bin: the bin of each item, and the loads then. `tokens` descend. None where an item fits in
    no bin."""
    bins = len(loads)
    bits = bins.bit_length()
    number = (1 << bits) - 1
    loads = (loads << bits) | np.arange(bins)
    filled = np.zeros(bins, np.int64)
    chosen = np.empty(len(work), np.int64)
    at = 0
    while at < len(work):
        size = int(tokens[at])
        order = loads[filled <= cap - size]
        if len(order) == 0:
            return None
        small = size * _LARGE <= cap
        if not small and len(order) < bins:  # a bin without room for this item waits for one not much smaller
            window = tokens[at : at + len(order)]
            like = max(1, len(window) - int(window[::-1].searchsorted(int(size * _LIKE), "right")))
            order = np.partition(order, like - 1)[:like]
        order.sort()
        items = work[at : at + len(order)] << bits
        dealt = int((order[: len(items)] - items).searchsorted(order[0], "right"))
        if small:  # nearly full bins would make rounds of one item: these go on
            few, many = len(order) * _HASTE[0] // 4, len(order) * _HASTE[1] // 4
            dealt = max(dealt, min(few, len(items)), min(many, (len(work) - at) // _LEFT))
        order, end = order[:dealt], at + dealt
        into = np.bitwise_and(order, number, out=chosen[at:end])
        loads[into] = order + items[:dealt]
        filled[into] += tokens[at:end]
        at = end
    return chosen, loads >> bits


def fill(tokens: Any, starts: Any, bins: int, cap: int) -> Any | None:
    """As `deal`, item by item, tokens into bins of at most `cap`, in many groups at once.

    Group g holds the items `starts[g]:starts[g + 1]`, descending; its bins are number g * bins on.
    None where an item fits in no bin.
    """
    groups = len(starts) - 1
    bits = (groups * bins).bit_length()
    cap = min(cap, int(tokens.sum()))
    tokens = np.append(np.maximum(tokens, 1), np.zeros(bins, np.int64)) << bits
    full = (cap + 1 << bits) - 1
    columns = np.arange(bins)
    loads = np.arange(groups * bins).reshape(groups, bins)
    chosen = np.empty(len(tokens), np.int64)
    at, end = starts[:-1, None], starts[1:, None]
    while (live := at < end).any():
        loads.sort(axis=1)
        which = at + columns
        items = tokens[which]
        dealt = (loads - items <= loads[:, :1]) & (loads <= full - items[:, :1]) & (which < end)
        if (live > dealt[:, :1]).any():
            return None
        chosen[which[dealt]] = loads[dealt]
        loads += items * dealt
        at = at + dealt.sum(axis=1, keepdims=True)
    return chosen[:-bins] & ((1 << bits) - 1)
