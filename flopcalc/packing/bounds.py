"""What no plan can beat: lower bounds of the makespan, in FLOPs."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from flopcalc.packing.pricing import Priced, descends, exact_sum

__all__ = ["lower_bounds"]

_ROUNDING = 1e-9  # what floats may be off by


def lower_bounds(documents: Priced, ranks: int, *, cap: int | None = None, equal_count: bool = False) -> dict[str, int]:
    """Each bound by its name: `mean` is a rank's share of all work; `largest` follows from the
    largest documents; `cap`, asked for where ranks meet at every micro-batch, from both; `count`,
    where ranks get equal numbers of documents, from what must lie beside the largest."""
    flops, work = documents.flops, documents.work
    if not descends(flops):
        flops, work = np.sort(flops)[::-1], np.sort(work)[::-1]
    total = exact_sum(flops)
    bounds = {"mean": -(-total // ranks), "largest": _largest(flops, work, ranks)}
    if cap is not None:
        bounds["cap"] = _cap(documents, total, ranks, cap)
    if equal_count:
        bounds["count"] = _count(flops, ranks)
    return bounds


def _largest(flops: Any, work: Any, ranks: int) -> int:
    """The largest document; or the j + 1 that some rank must hold of the j*ranks + 1 largest."""
    if len(flops) == 0:
        return 0
    summed = np.zeros(len(work) + 1, np.int64)
    np.cumsum(work, out=summed[1:])
    held = np.arange(-(-len(flops) // ranks))
    best = int((summed[held * ranks + 1] - summed[held * (ranks - 1)]).argmax())
    return exact_sum(flops[best * (ranks - 1) : best * ranks + 1])


def _count(flops: Any, ranks: int) -> int:
    """Equal numbers of documents: the j largest lie on q <= j ranks, together with the smallest of all
    at best; the mean of these ranks."""
    each = len(flops) // ranks
    if each == 0:
        return 0
    flops = flops.astype(np.float64)
    largest, smallest = np.cumsum(flops), np.append(0.0, np.cumsum(flops[::-1]))
    best = 0.0
    for held in range(1, ranks + 1):
        on = np.arange(-(-held // each), held + 1)
        best = max(best, float(((largest[held - 1] + smallest[on * each - held]) / on).min()))
    return ceil(best * (1 - _ROUNDING))


def _cap(documents: Priced, total: int, ranks: int, cap: int) -> int:
    """The cap's share where ranks meet at every micro-batch; below the mean it says nothing.

    Documents of more than half the cap never share a micro-batch, so the j dearest steps last at
    least as long as number 0, ranks, 2*ranks, ... of them together. Their j*ranks micro-batches hold
    no more work than

    * j*ranks*cap tokens at the highest costs per token that there are, and
    * the j*ranks longest documents, each with what may lie beside it: the rest of the cap at the
      highest cost per token of the documents that are no longer than itself and fit.

    What the ranks could do in those steps and do not is idle time, on top of the mean.
    """
    if len(documents.flops) == 0:
        return 0
    flops = documents.flops.astype(np.float64) if documents.flops.dtype == object else documents.flops
    long = documents.longer(cap // 2)
    heads = np.append(float(flops.max()), np.sort(flops[:long])[::-1][ranks::ranks])
    bins = np.arange(1, len(heads) + 1) * ranks
    idle = np.cumsum(heads) * ranks - _most_work(documents, flops, bins, cap)
    return ceil(float(total + idle.max()) / ranks * (1 - _ROUNDING))


def _most_work(documents: Priced, flops: Any, bins: Any, cap: int) -> Any:
    """An upper bound of the work that so many micro-batches can hold, for each number of `bins`."""
    tokens = documents.tokens
    rate = np.zeros(len(tokens) + 1)
    np.maximum(tokens, 1, out=rate[:-1])
    np.divide(flops, rate[:-1], out=rate[:-1])
    if not descends(rate):  # the highest cost per token of a document no longer than each
        rate = np.maximum.accumulate(rate[::-1])[::-1]
    held = np.cumsum(tokens)
    needed = int(np.searchsorted(held, bins[-1] * cap)) + 1
    work = np.cumsum(rate[:-1][:needed] * tokens[:needed])
    by_tokens = np.interp(bins * float(cap), np.append(0, held[:needed]), np.append(0, work))

    few = max(int(bins[-1]), documents.longer(cap // 2))
    longest = tokens[:few]
    beside = np.minimum(longest, cap - longest)
    fits = len(tokens) - np.searchsorted(tokens[::-1], beside, "right")
    full = flops[:few] + (cap - longest) * rate[fits]
    full = np.append(full, cap * rate[min(few, len(tokens))])  # shorter ones than these: no more than that
    full = np.maximum.accumulate(full[::-1])[::-1][:-1]
    by_longest = np.append(0.0, np.cumsum(full))[np.minimum(bins, len(full))]
    return np.minimum(by_tokens, by_longest)
