"""How many micro-batches a rank, and which way to lay the documents out on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from flopcalc.errors import InvalidBatch, InvalidOption
from flopcalc.packing.bounds import lower_bounds
from flopcalc.packing.cells import Task, level_ranks, level_steps, padded_runs, split, tight
from flopcalc.packing.exchange import Exchange

__all__ = ["GOOD", "find_cells", "polish"]

GOOD = 1.01  # so close to the lower bound, more micro-batches are not tried
_MORE = 4  # numbers of micro-batches tried after the first that fits
_EXCHANGES = 400_000  # times documents, for the last bit of evenness; fewer than 20 are not worth it
_RESCUE = 2_000  # exchanges where the bound is far


def find_cells(task: Task, micro_batches: int | None) -> tuple[Any, int]:
    """The cell of each document and the micro-batches of a rank: the fewest whose makespan is within
    1 % of the lower bound, else the best of those tried.

    Raises InvalidBatch where no packing is found, InvalidOption for too few `micro_batches`.
    """
    fewest, most = _range(task, micro_batches)
    good = GOOD
    found: list[tuple[float, int, Any]] = []
    for steps in _growing(fewest, most):
        cell = _lay_out(task, steps)
        if cell is not None:
            makespan = task.makespan(cell, steps)
            if not found and makespan > GOOD:
                good *= _bound(task)
            found.append((makespan, steps, cell))
            if makespan <= good or len(found) > _MORE:
                break
    if found:
        makespan, steps, cell = min(found, key=lambda entry: entry[0])
        return polish(task, cell, steps, far=makespan > good), steps
    cell, steps = _squeeze(task, fewest, most)
    return polish(task, cell, steps, far=True), steps


def _range(task: Task, micro_batches: int | None) -> tuple[int, int]:
    """The fewest micro-batches a rank that can hold the tokens and the long documents, of which no
    two share one; the most that can all get a document."""
    tokens = task.documents.tokens
    long = int(np.count_nonzero(2 * tokens > task.cap))
    fewest = max(1, -(-int(tokens.sum()) // (task.cap * task.ranks)), -(-long // task.ranks))
    most = len(tokens) // task.ranks
    if micro_batches is not None:
        if micro_batches < fewest:
            raise InvalidOption(f"micro_batches: found {micro_batches}, expected at least {fewest} under this cap")
        fewest, most = micro_batches, min(most, micro_batches)
    if fewest > most:
        raise InvalidBatch(
            f"seq_lens: found {len(tokens)} documents, expected at least {fewest * task.ranks}: one for each of "
            f"{fewest} micro-batches on {task.ranks} ranks; raise max_tokens or take fewer ranks"
        )
    return fewest, most


def _growing(fewest: int, most: int) -> Iterator[int]:
    steps = fewest
    while steps < most:
        yield steps
        steps += max(1, steps // 16)
    yield most


def _lay_out(task: Task, steps: int) -> Any | None:
    if task.padded:
        return padded_runs(task, steps)
    by_rank = level_ranks(task, steps) if task.sync == "step" else None
    return level_steps(task, steps) if by_rank is None else by_rank


def _bound(task: Task) -> float:
    """The lower bound over a rank's share."""
    bounds = lower_bounds(task.documents, task.ranks, task.cap if task.sync == "micro_batch" else None)
    return max(bounds.values()) / max(bounds["mean"], 1)


def _squeeze(task: Task, fewest: int, most: int) -> tuple[Any, int]:
    """Cells and micro-batches a rank where dealing found no room."""
    bins = [] if task.padded else tight(task)
    if task.padded or len(bins) > most * task.ranks:
        raise InvalidBatch(
            f"seq_lens: found no way to pack {len(task.documents.work)} documents into {most} micro-batches of at most "
            f"{task.cap} tokens on each of {task.ranks} ranks; raise max_tokens or take fewer ranks"
        )
    steps = max(fewest, -(-len(bins) // task.ranks))
    return task.arrange(split(task, bins, task.ranks * steps), steps), steps


def polish(task: Task, cell: Any, steps: int, *, far: bool, moves: bool = True) -> Any:
    """Local search: where there are many documents a short one or none, unless the makespan is `far`
    from the bound."""
    exchanges = _RESCUE if far else min(_RESCUE, _EXCHANGES // len(cell))
    if task.padded or exchanges < 20:
        return cell
    cells = np.arange(task.ranks * steps)
    owner = cells // steps if task.sync == "step" else cells
    exchange = Exchange(task.documents, cell, owner, task.cap, moves=moves)
    if task.sync == "step":
        exchange.level(np.arange(task.ranks), exchanges)
        return exchange.cell
    for step in range(steps):
        exchange.level(cells[step::steps], exchanges // steps + 1)
    return task.arrange(exchange.cell, steps)
