"""How many micro-batches a rank, and which way to lay the documents out on them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from flopcalc.errors import InvalidBatch, InvalidOption
from flopcalc.packing.bounds import lower_bounds
from flopcalc.packing.cells import Layout, Task, level_ranks, level_steps, padded_runs, tight_bins
from flopcalc.packing.exchange import exchange

__all__ = ["find_cells", "polish"]

_GOOD = 1.01  # so close to the lower bound, more micro-batches are not tried
_FEW = 20_000  # documents, up to which they are, and the local search takes its time
_TINY = 2_000  # documents, up to which every way is tried
_MORE = 4  # numbers of micro-batches tried after the first that fits


def find_cells(task: Task, micro_batches: int | None) -> tuple[Any, int]:
    """The cell of each document and the micro-batches of a rank: the best of the first five numbers
    that fit; of many documents, the first whose makespan is within 1 % of the lower bound.

    Raises InvalidBatch where no packing is found, InvalidOption for too few `micro_batches`.
    """
    fewest, most = _range(task, micro_batches)
    few = len(task.documents.work) <= _FEW
    good = _GOOD
    found: list[tuple[float, int, Any]] = []
    for steps in _growing(fewest, most):
        layouts = list(_layouts(task, steps, last=steps == most))
        if not layouts:
            continue
        cell, makespan = min(layouts, key=attrgetter("makespan"))
        if not found and makespan > good:
            good *= _bound(task)
        found.append((makespan, steps, cell))
        if (makespan <= good and not few) or len(found) > _MORE:
            break
    if not found:
        raise InvalidBatch(
            f"seq_lens: found no way to pack {len(task.documents.work)} documents into {most} micro-batches of at most "
            f"{task.cap} tokens on each of {task.ranks} ranks; raise max_tokens or take fewer ranks"
        )
    makespan, steps, cell = min(found, key=itemgetter(0))
    if task.padded or (task.sync == "micro_batch" and not few and makespan <= good):
        return cell, steps
    return polish(task, cell, steps, far=makespan > good), steps


def _range(task: Task, micro_batches: int | None) -> tuple[int, int]:
    """The fewest micro-batches a rank that can hold the tokens and the long documents, of which no
    two share one; the most that can all get a document."""
    tokens = task.documents.tokens
    long = task.documents.longer(task.cap // 2)
    fewest = max(1, -(-int(tokens.sum()) // (task.cap * task.ranks)), -(-long // task.ranks))
    most = len(tokens) // task.ranks
    if micro_batches is not None:
        if micro_batches < fewest:
            raise InvalidOption(f"micro_batches: found {micro_batches}, expected at least {fewest} under this cap")
        fewest, most = micro_batches, min(most, micro_batches)
    if fewest > most:
        remedy = "raise max_tokens or take fewer ranks" if micro_batches is None else "take fewer micro_batches"
        raise InvalidBatch(
            f"seq_lens: found {len(tokens)} documents, expected at least {fewest * task.ranks}: one for each of "
            f"{fewest} micro-batches on {task.ranks} ranks; {remedy}"
        )
    return fewest, most


def _growing(fewest: int, most: int) -> Iterator[int]:
    steps = fewest
    while steps < most:
        yield steps
        steps += max(1, steps // 16)
    yield most


def _layouts(task: Task, steps: int, *, last: bool) -> Iterator[Layout]:
    """The first way that fits; of a tiny number of documents, each."""
    tiny = len(task.documents.work) <= _TINY
    ways = [padded_runs] if task.padded else [level_steps] if task.sync == "micro_batch" else [level_ranks, level_steps]
    if not task.padded and (last or tiny):
        ways.append(tight_bins)
    for way in ways:
        layout = way(task, steps)
        if layout is not None:
            yield layout
            if not tiny:
                return


def _bound(task: Task) -> float:
    """The lower bound over a rank's share."""
    bounds = lower_bounds(task.documents, task.ranks, cap=task.cap if task.sync == "micro_batch" else None)
    return max(bounds.values()) / max(bounds["mean"], 1)


def polish(task: Task, cell: Any, steps: int, *, far: bool, moves: bool = True, quick: bool = False) -> Any:
    """Local search: a thorough one for few documents, and where the makespan is `far` from the bound."""
    thorough = far or len(cell) <= _FEW
    meet = partial(
        exchange,
        task.documents,
        cell,
        cap=task.cap,
        rounds=3 if quick and not thorough else 40,
        offered=40 if thorough else 16,
        moves=moves,
        thorough=thorough,
    )
    if task.sync == "step":
        return meet(groups=np.arange(task.ranks)[None], cells_each=steps)
    bins = meet(groups=np.arange(task.ranks * steps).reshape(task.ranks, steps).T, cells_each=1)
    return task.arrange(bins, steps).cell
