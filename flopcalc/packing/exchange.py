"""Local search: heavy owners give light ones work, by swapping two documents or moving one."""

from __future__ import annotations

from typing import Any

import numpy as np

from flopcalc.packing.pricing import Priced, stable_order

__all__ = ["exchange"]

_COMPARED = 20_000  # pairs of documents looked at in a round, about
_ROUNDS = 3
_MOST_PAIRS = 50_000  # of owners; more would take as much memory as all else
_SMALLEST = 32  # documents an owner, the smallest of all, that do without special effort
_OFFERED = 4, 48  # documents of an owner that may change hands, at least and at most


def exchange(
    documents: Priced, cell: Any, groups: Any, cells_each: int, cap: int, *, moves: bool = True, effort: int = 1
) -> Any:
    """The cells of documents after exchanges that level the loads of owners.

    Owner i has the cells i * cells_each on, and its load is the work in them. In a round the heaviest
    owner of a group meets the lightest, the second heaviest the second lightest, and so on, and each
    two make the one exchange that brings their loads closest. No cell comes to hold more than `cap`
    tokens; none becomes empty, since the last document of a heavy owner is more than a light one lacks.

    Args:
        cell: the cell of each document.
        groups: the owners that meet, one group a row; each owner is in one.
        moves: whether documents may move as well as swap; they do only where an owner has one cell.
        effort: multiplies the rounds, and what is compared in each.
    """
    num, owners = len(cell), groups.size
    pairs = len(groups) * (groups.shape[1] // 2)
    if not 0 < pairs <= _MOST_PAIRS:
        return cell
    most = int(np.clip((effort * _COMPARED / pairs) ** 0.5, *_OFFERED))
    first = 0 if effort > 1 else max(0, num - _SMALLEST * owners)
    owner = cell // cells_each
    offers = _offers(owner, owners, most, first)
    filled = np.bincount(cell, documents.tokens, owners * cells_each).astype(np.int64)
    load = np.bincount(owner, documents.work, owners).astype(np.int64)
    # The last place is "nothing": an offer left empty, and what a document is swapped for that moves.
    work, tokens, cell = (np.append(values, 0) for values in (documents.work, documents.tokens, cell))
    moves = moves and cells_each == 1
    for turn in range(_ROUNDS * effort):
        if turn and effort > 1:
            offers = _offers(cell[:-1] // cells_each, owners, most, first)
        ranked = np.take_along_axis(groups, np.argsort(load[groups], axis=1, kind="stable"), axis=1)
        half = groups.shape[1] // 2
        heavy, light = ranked[:, ::-1][:, :half].ravel(), np.roll(ranked[:, :half], turn // 2, axis=1).ravel()
        gap = (load[heavy] - load[light])[:, None, None]
        gives, takes = offers[heavy][:, :, None], offers[light][:, None, :]
        source = np.where(gives < num, cell[gives], heavy[:, None, None])
        target = np.where(takes < num, cell[takes], light[:, None, None])
        shift, grows = work[gives] - work[takes], tokens[gives] - tokens[takes]
        allowed = (shift > 0) & (shift < gap) & (filled[target] + grows <= cap) & (filled[source] - grows <= cap)
        if not moves:
            allowed &= takes < num
        miss = np.where(allowed, abs(2 * shift - gap), gap).reshape(pairs, -1)
        best = miss.argmin(axis=1)
        agreed = np.flatnonzero(miss[np.arange(pairs), best] < gap[:, 0, 0])
        if len(agreed) == 0:
            break
        a, b = np.divmod(best[agreed], offers.shape[1])
        heavy, light = heavy[agreed], light[agreed]
        give, take = offers[heavy, a], offers[light, b]
        source, target = source[agreed, a, 0], target[agreed, 0, b]
        for document, old, new, old_owner, new_owner in (
            (give, source, target, heavy, light),
            (take, target, source, light, heavy),
        ):
            cell[document] = new
            filled[old] -= tokens[document]
            filled[new] += tokens[document]
            load[old_owner] -= work[document]
            load[new_owner] += work[document]
        offers[heavy, a], offers[light, b] = take, give
    return cell[:-1]


def _offers(owner: Any, owners: int, most: int, first: int) -> Any:
    """Documents of each owner, (owners, slots), from number `first` on: all where they are few, else
    the smallest and some of every size; `len(owner)` in slots left empty, of which there is one at
    least."""
    order = np.append(stable_order(owner[first:]) + first, len(owner))
    held = np.bincount(owner[first:], minlength=owners)[:, None]
    half = most // 2
    slot = np.arange(min(most, int(held.max())) + 1)
    spaced = np.where(slot < half, slot * slot * (held - 2 * half) // half**2 + slot, held - 2 * half + slot)
    which = np.where(held <= 2 * half, slot, spaced)
    return order[np.where(which < held, np.cumsum(held)[:, None] - held + which, len(order) - 1)]
