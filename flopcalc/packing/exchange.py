"""Local search: heavy owners give light ones work, by swapping two documents or moving one."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

from flopcalc.packing.pricing import Priced, stable_order

__all__ = ["exchange"]

_COMPARED = 300_000  # pairs of documents looked at in a round, at most
_POOLED = 32  # documents an owner of the smallest, and as many of all sizes, to choose from unless `thorough`
_LEVEL = 0.2  # of a document's share of all work: so little above the mean, the rest is left unless `thorough`
_FEWEST, _MOST_PAIRS = 4, 50_000  # offers of an owner; pairs of owners: more would take too much memory


def exchange(
    documents: Priced,
    cell: Any,
    groups: Any,
    cells_each: int,
    cap: int,
    *,
    rounds: int,
    offered: int,
    moves: bool = True,
    thorough: bool = False,
) -> Any:
    """The cells of documents after exchanges that level the loads of owners.

    Owner i has the cells i * cells_each on, and its load is the work in them. In a round the heaviest
    owner of a group meets the lightest, the second heaviest the second lightest, and so on, and each
    two make the one exchange that brings their loads closest. No cell comes to hold more than `cap`
    tokens; none becomes empty, since the last document of a heavy owner is more than a light one lacks.

    Args:
        cell: the cell of each document.
        groups: the owners that meet, one group a row; each owner is in one.
        rounds: at most; it ends when no two agree any more.
        offered: documents of an owner that may change hands in a round, fewer where there are many owners.
        moves: whether documents may move as well as swap; they do only where an owner has one cell.
        thorough: any document may be offered; else some small ones and some of each size.
    """
    num, owners = len(cell), groups.size
    pairs = len(groups) * (groups.shape[1] // 2)
    if not 0 < pairs <= _MOST_PAIRS:
        return cell
    offered = max(_FEWEST, min(offered, isqrt(_COMPARED // pairs)))
    pool = np.arange(num)
    if not thorough and num > 2 * _POOLED * owners:
        smallest = num - _POOLED * owners
        pool = np.append(pool[: smallest : smallest // (_POOLED * owners)], pool[smallest:])
    load = np.bincount(cell, documents.work, owners * cells_each).astype(np.int64)
    load = load.reshape(owners, cells_each).sum(axis=1)
    filled = np.zeros(owners * cells_each, np.int64)
    capped = cap < documents.tokens.sum()
    if capped:
        filled += np.bincount(cell, documents.tokens, len(filled)).astype(np.int64)
    # The last place is "nothing": an offer left empty, and what a document is swapped for that moves.
    nothing = len(pool)
    work, tokens, now = (np.append(values[pool], 0) for values in (documents.work, documents.tokens, cell))
    moves = moves and cells_each == 1
    level = load.mean() * (1 + _LEVEL / num)
    for turn in range(rounds):
        if not thorough and load.max() <= level:
            break
        offers = _offers(now[:-1] // cells_each, owners, offered, turn)
        ranked = np.take_along_axis(groups, np.argsort(load[groups], axis=1, kind="stable"), axis=1)
        half = groups.shape[1] // 2
        heavy, light = ranked[:, ::-1][:, :half].ravel(), np.roll(ranked[:, :half], turn // 2, axis=1).ravel()
        gap = (load[heavy] - load[light])[:, None, None]
        gives, takes = offers[heavy][:, :, None], offers[light][:, None, :]
        source = np.where(gives < nothing, now[gives], heavy[:, None, None])
        target = np.where(takes < nothing, now[takes], light[:, None, None])
        miss = abs((2 * work[gives] - gap) - 2 * work[takes])  # the gap that an exchange would leave
        if capped:
            grows = tokens[gives] - tokens[takes]
            miss = np.where((grows <= cap - filled[target]) & (grows >= filled[source] - cap), miss, gap)
        if not moves:
            miss = np.where(takes < nothing, miss, gap)
        miss = miss.reshape(pairs, -1)
        best = miss.argmin(axis=1)
        agreed = np.flatnonzero(miss[np.arange(pairs), best] < gap[:, 0, 0])
        if len(agreed) == 0:
            break
        a, b = np.divmod(best[agreed], offers.shape[1])
        heavy, light = heavy[agreed], light[agreed]
        give, take = offers[heavy, a], offers[light, b]
        source, target = source[agreed, a, 0], target[agreed, 0, b]
        now[give], now[take] = target, source
        for amount, of, lessens, rises in ((tokens, filled, source, target), (work, load, heavy, light)):
            shift = amount[give] - amount[take]
            of[lessens] -= shift
            of[rises] += shift
    cell = cell.copy()
    cell[pool] = now[:-1]
    return cell


def _offers(owner: Any, owners: int, most: int, turn: int) -> Any:
    """Documents that each owner offers, (owners, slots): all where they are few, else the smallest and
    some of every size, others each turn; one past the last document, "nothing", in slots left empty, of
    which there is one at least."""
    order = np.append(stable_order(owner), len(owner))
    held = np.bincount(owner, minlength=owners)[:, None]
    half = most // 2
    slot = np.arange(min(most, int(held.max())) + 1)
    starts = np.arange(len(slot) + 1) ** 2 * (held - 2 * half) // half**2
    spaced = starts[:, :-1] + slot + 5 * turn % np.maximum(np.diff(starts), 1)
    which = np.where(held <= 2 * half, slot, np.where(slot < half, spaced, held - 2 * half + slot))
    return order[np.where(which < held, np.cumsum(held)[:, None] - held + which, len(order) - 1)]
