"""Ways to lay documents out on ranks * steps micro-batches.

A cell is a micro-batch's number, rank * steps + step. Each way gives a `Layout`, or None where the
documents do not fit that way.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from typing import Any, NamedTuple

import numpy as np

from flopcalc.packing.dealing import deal, deal_under_cap, fill
from flopcalc.packing.plan import Sync
from flopcalc.packing.pricing import Priced, stable_order

__all__ = ["Layout", "Task", "level_ranks", "level_steps", "padded_runs", "tight_bins"]


class Layout(NamedTuple):
    """The cell of each document, and the makespan (see `Task.makespan`)."""

    cell: Any
    makespan: float


class Task(NamedTuple):
    """What to lay out: where ranks wait for each other (`sync`), and whether micro-batches are padded
    to their longest document."""

    documents: Priced
    ranks: int
    cap: int
    sync: Sync
    padded: bool = False

    def load(self, bins: Any, num: int) -> Any:
        """Work in each of `num` bins, int64."""
        work = self.documents.work
        if not self.padded:
            return np.bincount(bins, work, num).astype(np.int64)
        longest = np.zeros(num, np.int64)
        np.maximum.at(longest, bins, work)
        return longest * np.bincount(bins, minlength=num)

    def makespan(self, load: Any, steps: int) -> float:
        """The slowest rank's work, of the work in each cell, over a rank's share of all work without padding."""
        load = load.reshape(self.ranks, steps)
        slowest = load.sum(axis=1).max() if self.sync == "step" else load.max(axis=0).sum()
        return int(slowest) * self.ranks / int(self.documents.work.sum())

    def arrange(self, bins: Any, steps: int, load: Any = None) -> Layout:
        """Cells from bins in any order, of this load: bins of like work meet in a step, or the ranks'
        sums are level."""
        load = self.load(bins, self.ranks * steps) if load is None else load
        cell = (_to_ranks if self.sync == "step" else _to_steps)(load, self.ranks, steps)
        by_cell = np.empty_like(load)
        by_cell[cell] = load
        return Layout(cell[bins], self.makespan(by_cell, steps))


def _to_steps(load: Any, ranks: int, steps: int) -> Any:
    """The cell of each bin: R by R in descending order, the shortest makespan that these bins have.
    Every other step is dealt backwards, which keeps the sums of the ranks close too."""
    step, rank = np.divmod(np.arange(ranks * steps), ranks)
    cell = np.empty_like(step)
    cell[stable_order(load, descending=True)] = np.where(step % 2, ranks - 1 - rank, rank) * steps + step
    return cell


def _to_ranks(load: Any, ranks: int, steps: int) -> Any:
    """The cell of each bin: `steps` bins a rank, level sums."""
    order = stable_order(load, descending=True)
    rank = deal(load[order], ranks, evenly=True)
    cell = np.empty_like(order)
    cell[order[stable_order(rank)]] = np.arange(ranks * steps)
    return cell


def level_steps(task: Task, steps: int) -> Layout | None:
    """Documents are dealt to all micro-batches at once, each up to the level of its step."""
    levels = _levels(task.documents.work, task.ranks, steps)
    for start in np.repeat([levels[0] - levels, levels * 0], task.ranks, axis=1):
        dealt = deal_under_cap(task.documents.work, task.documents.tokens, start, task.cap)
        if dealt is not None and (dealt[1] > start).all():
            bins, loads = dealt
            return task.arrange(bins, steps, loads - start)
    return None


def _levels(work: Any, ranks: int, steps: int) -> Any:
    """How much work each step's micro-batches should hold, descending. A step lasts as long as its
    largest document, so the largest of all share one and are joined by more than elsewhere; where
    documents are small, all levels are the mean."""
    heads = work[: steps * ranks : ranks].tolist()
    rest = int(work.sum()) // ranks
    for step, head in enumerate(heads):
        if head * (steps - step) <= rest:
            return np.array(heads[:step] + [rest // (steps - step)] * (steps - step))
        rest -= head
    return np.array(heads)


def level_ranks(task: Task, steps: int) -> Layout | None:
    """Level work on the ranks first, then level tokens in the micro-batches of each."""
    work = task.documents.work
    rank = deal(work, task.ranks)
    if np.bincount(rank, minlength=task.ranks).min() < steps:  # a rank of one huge document: small ones fill up
        filler = task.ranks * (steps - 1)
        rank = deal(work[:-filler], task.ranks)
        loads = np.bincount(rank, work[:-filler], task.ranks).astype(np.int64)
        rank = np.append(rank, deal(work[-filler:], task.ranks, evenly=True, loads=loads))
    counts = np.bincount(rank, minlength=task.ranks)
    order = stable_order(rank)
    bins = fill(task.documents.tokens[order], np.append(0, np.cumsum(counts)), steps, task.cap)
    if bins is None:
        return None
    cell = np.empty_like(bins)
    cell[order] = bins
    return Layout(cell, task.makespan(task.load(cell, task.ranks * steps), steps))


def tight_bins(task: Task, steps: int) -> Layout | None:
    """Best fit decreasing: each document into the fullest micro-batch that has room. One document at
    a time: slower than dealing, and tighter."""
    bins: list[list[int]] = []
    rooms: list[tuple[int, int]] = []  # (room, bin), ascending
    for document, size in enumerate(task.documents.tokens.tolist()):
        at = bisect_left(rooms, (size, -1))
        room, into = rooms.pop(at) if at < len(rooms) else (task.cap, len(bins))
        if into == len(bins):
            bins.append([])
        bins[into].append(document)
        insort(rooms, (room - size, into))
    wanted = task.ranks * steps
    return task.arrange(_split(task, bins, wanted), steps) if len(bins) <= wanted else None


def padded_runs(task: Task, steps: int) -> Layout | None:
    """Runs of documents of like length, as long as the cap and a level of work allow: the lowest
    level at which they hold all documents."""
    tokens, work = task.documents.tokens.tolist(), task.documents.work.tolist()

    def runs(level: int) -> list[list[int]]:
        found, at = [], 0
        while at < len(work):
            end = min(len(work), at + max(1, min(task.cap // max(tokens[at], 1), level // work[at])))
            found.append(list(range(at, end)))
            at = end
        return found

    low, high, wanted = work[0], work[0] * len(work), task.ranks * steps
    if len(runs(high)) > wanted:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(runs(middle)) <= wanted else (middle + 1, high)
    return task.arrange(_split(task, runs(low), wanted), steps)


def _split(task: Task, bins: list[list[int]], wanted: int) -> Any:
    """The bin of each document, after the heaviest bins were halved until there are `wanted`; there
    must be as many documents."""
    work = task.documents.work.tolist()

    def entry(i: int) -> tuple[int, int]:
        held = bins[i]
        return -(work[held[0]] * len(held) if task.padded else sum(work[document] for document in held)), i

    heap = [entry(i) for i, held in enumerate(bins) if len(held) > 1]
    heapq.heapify(heap)
    while len(bins) < wanted:
        _, i = heapq.heappop(heap)
        half = (len(bins[i]) + 1) // 2
        bins.append(bins[i][half:])
        del bins[i][half:]
        for j in (i, len(bins) - 1):
            if len(bins[j]) > 1:
                heapq.heappush(heap, entry(j))
    bin_of = np.empty(len(work), np.int64)
    for i, held in enumerate(bins):
        bin_of[held] = i
    return bin_of
