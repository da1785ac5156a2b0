"""What packers of the field do, for comparison: each balances something else than FLOPs.

Every function gives the documents of each micro-batch: `num_ranks * steps` lists of places, with as
few steps as the method needs to keep the cap. Written for clarity and for 100 thousand documents;
each algorithm is the textbook's.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

Bins = list[list[int]]


def first_fit_by_tokens(lengths: np.ndarray, cap: int, num_ranks: int) -> Bins:
    """First fit decreasing: each document into the first micro-batch that has room for it."""
    leaves = 1 << (len(lengths) - 1).bit_length()
    room = [cap] * (2 * leaves)  # a tournament of free tokens; bins open from left to right
    bins: Bins = []
    for document in np.argsort(-lengths, kind="stable").tolist():
        size, node = int(lengths[document]), 1
        while node < leaves:
            node = 2 * node if room[2 * node] >= size else 2 * node + 1
        if node - leaves == len(bins):
            bins.append([])
        bins[node - leaves].append(document)
        room[node] -= size
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return bins + [[] for _ in range(-len(bins) % num_ranks)]


def greedy_by_tokens(lengths: np.ndarray, cap: int, num_ranks: int) -> Bins:
    """Longest first into the micro-batch with the fewest tokens."""
    return _under_cap(lengths, cap, num_ranks, lambda num: greedy(lengths, num))


def karmarkar_karp_by_squares(lengths: np.ndarray, cap: int, num_ranks: int) -> Bins:
    """Karmarkar-Karp on n*n, with more micro-batches until the cap is kept."""
    return _under_cap(lengths, cap, num_ranks, lambda num: karmarkar_karp(lengths.astype(np.int64) ** 2, num))


def _under_cap(lengths: np.ndarray, cap: int, num_ranks: int, split: Callable[[int], Bins]) -> Bins:
    steps = -(-int(lengths.sum()) // (cap * num_ranks))
    while steps * num_ranks <= len(lengths):
        bins = split(steps * num_ranks)
        if max(int(lengths[held].sum()) for held in bins) <= cap:
            return bins
        steps += max(1, steps // 16)
    raise ValueError("no number of micro-batches keeps the cap")


def greedy(values: np.ndarray, num: int) -> Bins:
    """Longest processing time first, without a cap."""
    bins: Bins = [[] for _ in range(num)]
    heap = [(0, i) for i in range(num)]
    for document in np.argsort(-values, kind="stable").tolist():
        load, i = heap[0]
        bins[i].append(document)
        heapq.heapreplace(heap, (load + int(values[document]), i))
    return bins


def karmarkar_karp(values: np.ndarray, num: int) -> Bins:
    """The largest differencing method: the two partial splits of the widest spread are merged, the
    heaviest bins of one with the lightest of the other, until one split is left."""
    # A split is its non-empty bins, heaviest first: their work and nodes. A node is a document, or
    # from len(values) on two nodes joined.
    splits = {i: (values[i : i + 1], np.array([i])) for i in range(len(values))}
    heap = [(-value, i) for i, value in enumerate(values.tolist())]  # widest spread first, then oldest
    heapq.heapify(heap)
    joined: list[tuple[int, np.ndarray, np.ndarray]] = []
    nodes, fresh = len(values), len(values)
    while len(heap) > 1:
        (work, left), (other, right) = (splits.pop(heapq.heappop(heap)[1]) for _ in range(2))
        shared = max(0, len(work) + len(other) - num)
        alone, other_alone = len(work) - shared, len(other) - shared
        if shared:
            joined.append((nodes, left[alone:], right[other_alone:][::-1]))
        both = np.arange(nodes, nodes + shared)
        nodes += shared
        work = np.concatenate([work[:alone], work[alone:] + other[other_alone:][::-1], other[:other_alone]])
        left = np.concatenate([left[:alone], both, right[:other_alone]])
        order = np.argsort(-work, kind="stable")
        splits[fresh] = work[order], left[order]
        spread = work[order[0]] - (work[order[-1]] if len(work) == num else 0)
        heapq.heappush(heap, (-int(spread), fresh))
        fresh += 1
    bin_of = np.empty(nodes, np.int64)
    if heap:
        roots = splits[heap[0][1]][1]
        bin_of[roots] = np.arange(len(roots))
    for first, left, right in reversed(joined):
        bin_of[left] = bin_of[right] = bin_of[first : first + len(left)]
    bins: Bins = [[] for _ in range(num)]
    for document, i in enumerate(bin_of[: len(values)].tolist()):
        bins[i].append(document)
    return bins


def makespan(bins: Bins, flops: np.ndarray, num_ranks: int, sync: str) -> int:
    """FLOPs that a step lasts, the micro-batches placed as well as they can be: those of like FLOPs
    meet, or ranks are dealt the largest first."""
    work = sorted((int(flops[held].sum()) if held else 0 for held in bins), reverse=True)
    if sync == "micro_batch":
        return sum(work[::num_ranks])
    per_rank = len(work) // num_ranks
    heap = [(0, 0, rank) for rank in range(num_ranks)]
    full = []
    for value in work:
        load, held, rank = heapq.heappop(heap)
        target = full if held + 1 == per_rank else heap
        heapq.heappush(target, (load + value, held + 1, rank))
    return max(load for load, _, _ in full)
