"""What no plan can beat: lower bounds of the makespan, in FLOPs."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from flopcalc.packing.pricing import Priced, exact_sum

__all__ = ["lower_bounds"]

_ROUNDING = 1e-9


def lower_bounds(documents: Priced, ranks: int, cap: int | None) -> dict[str, int]:
    """Each bound by its name: `mean` is a rank's share of all work; `largest` follows from the
    largest documents; `cap`, asked for where ranks meet at every micro-batch, from both."""
    mean = -(-exact_sum(documents.flops) // ranks)
    bounds = {"mean": mean, "largest": _largest_bound(documents, ranks)}
    return bounds if cap is None else {**bounds, "cap": _cap_bound(documents, ranks, cap)}


def _largest_bound(documents: Priced, ranks: int) -> int:
    """The largest document; or the j + 1 that some rank must hold of the j*ranks + 1 largest."""
    if len(documents.flops) == 0:
        return 0
    summed = np.append(0.0, np.cumsum(documents.flops.astype(np.float64)))
    held = np.arange(-(-len(documents.flops) // ranks))
    best = int((summed[held * ranks + 1] - summed[held * (ranks - 1)]).argmax())
    return exact_sum(documents.flops[best * (ranks - 1) : best * ranks + 1])


def _cap_bound(documents: Priced, ranks: int, cap: int) -> int:
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
    flops = documents.flops.astype(np.float64)
    long = np.flatnonzero(2 * documents.tokens > cap)
    heads = np.append(flops[0], flops[long[ranks::ranks]])
    steps = np.arange(1, len(heads) + 1)
    idle = np.cumsum(heads) * ranks - _most_work(documents.tokens, flops, steps * ranks, cap)
    total = np.cumsum(flops)[-1]  # one after the other, hence the same on every machine
    return ceil(float(total + idle.max()) / ranks * (1 - _ROUNDING))


def _most_work(tokens: Any, flops: Any, bins: Any, cap: int) -> Any:
    """An upper bound of the work that so many micro-batches can hold, for each number of `bins`."""
    ascending = np.argsort(tokens, kind="stable")
    tokens, flops = tokens[ascending], flops[ascending]
    rate = flops / np.maximum(tokens, 1)
    densest = np.argsort(-rate, kind="stable")
    by_tokens = np.interp(
        bins * float(cap), np.append(0, np.cumsum(tokens[densest])), np.append(0, np.cumsum(flops[densest]))
    )
    beside = np.minimum(tokens, cap - tokens)
    best_rate = np.append(0.0, np.maximum.accumulate(rate))[np.searchsorted(tokens, beside, "right")]
    full = np.maximum.accumulate(flops + (cap - tokens) * best_rate)
    by_longest = np.append(0.0, np.cumsum(full[::-1]))[np.minimum(bins, len(tokens))]
    return np.minimum(by_tokens, by_longest)
