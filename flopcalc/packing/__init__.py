"""Packing and balancing by FLOPs: documents into micro-batches under a token cap, micro-batches onto
data-parallel ranks, so that no rank waits long for another.

Costs come from the counter that reports MFU; attention never crosses documents, so a micro-batch
costs the sum of its documents. `docs/packing.md` says how it is done and how close it comes.
"""

from __future__ import annotations

import operator
from typing import Any, get_args

import numpy as np

from flopcalc.errors import InvalidBatch, InvalidOption
from flopcalc.packing.cells import Task
from flopcalc.packing.dealing import deal, deal_under_cap
from flopcalc.packing.plan import Plan, Sync
from flopcalc.packing.pricing import descends, price
from flopcalc.packing.search import find_cells, polish

__all__ = ["Plan", "Sync", "balance", "pack"]

_NO_CAP = 1 << 62
_LEVEL = 1.001  # above, a split without a cap deserves a longer local search


def pack(
    seq_lens: Any,
    *,
    max_tokens: int,
    num_ranks: int,
    counter: Any,
    sync: Sync = "micro_batch",
    micro_batches: int | None = None,
    multiple_of: int = 1,
    pad_to_longest: bool = False,
) -> Plan:
    """Documents into micro-batches of at most `max_tokens` tokens, the same number on every rank.

    Each document is in exactly one micro-batch, each micro-batch has a document, and the makespan
    in FLOPs is as small as can be found fast. Equal input gives an equal plan on every machine.

    Args:
        seq_lens: tokens of each document.
        counter: a `FlopCounter`, or any object with its `per_document`.
        sync: ranks wait for each other at every `micro_batch` (sharded parameters, FSDP), or once a
            `step` (replicated ones). The makespan is the slowest rank's FLOPs of each micro-batch,
            summed, or the slowest rank's sum.
        micro_batches: how many a rank; by default the best of the first five numbers that fit, or of
            more than 20 thousand documents the first within 1 % of the lower bound.
        multiple_of: each length is rounded up to a multiple of this, and costs as much.
        pad_to_longest: micro-batches are padded rows, each document as long as the longest beside it.

    Raises InvalidBatch for a document above the cap and where there are too few documents for the
    micro-batches that the cap asks for; InvalidOption for options that do not exist. An empty list
    is an empty plan.

    >>> import flopcalc
    >>> counter = flopcalc.FlopCounter({"model_type": "llama"})
    >>> pack([8192, 1024, 1024, 8192], max_tokens=16384, num_ranks=2, counter=counter).micro_batches
    [[[0, 1]], [[2, 3]]]
    """
    max_tokens, num_ranks = _positive("max_tokens", max_tokens), _positive("num_ranks", num_ranks)
    multiple_of = _positive("multiple_of", multiple_of)
    micro_batches = None if micro_batches is None else _positive("micro_batches", micro_batches)
    if sync not in get_args(Sync):
        raise InvalidOption(f"sync: found {sync!r}, expected 'micro_batch' or 'step'")
    documents = price(seq_lens, counter, multiple_of=multiple_of)
    num = len(documents.index)
    if num == 0:
        return Plan(documents, documents.index, num_ranks, 0, sync, max_tokens=max_tokens)
    if pad_to_longest and not descends(documents.flops):
        raise InvalidOption("pad_to_longest: needs a counter to which longer documents cost no less")
    if documents.tokens[0] > max_tokens:
        raise InvalidBatch(
            f"seq_lens[{documents.index[0]}]: found {documents.tokens[0]} tokens, expected at most "
            f"max_tokens = {max_tokens}; raise the cap, or cut or drop the document"
        )
    if num < num_ranks:
        raise InvalidBatch(f"seq_lens: found {num} documents, expected one for each of {num_ranks} ranks at least")
    cell, steps = find_cells(Task(documents, num_ranks, max_tokens, sync, pad_to_longest), micro_batches)
    return Plan(documents, cell, num_ranks, steps, sync, max_tokens=max_tokens, pad_to_longest=pad_to_longest)


def balance(seq_lens: Any, num_ranks: int, counter: Any, equal_count: bool = False) -> Plan:
    """Documents onto ranks, without a cap: each rank is one micro-batch of the plan.

    Args:
        equal_count: every rank gets the same number of documents; otherwise any number, and none at
            all where there are fewer documents than ranks.

    Raises InvalidBatch where `equal_count` is impossible. An empty list is an empty plan.

    >>> import flopcalc
    >>> counter = flopcalc.FlopCounter({"model_type": "llama"})
    >>> balance([4096] + [512] * 9, 2, counter).ranks
    [[0], [1, 2, 3, 4, 5, 6, 7, 8, 9]]
    """
    num_ranks = _positive("num_ranks", num_ranks)
    documents = price(seq_lens, counter, bins=num_ranks)
    num = len(documents.index)
    if equal_count and num % num_ranks:
        raise InvalidBatch(
            f"seq_lens: found {num} documents, which {num_ranks} ranks cannot share equally; expected a multiple"
        )
    cell = deal(documents.work, num_ranks, evenly=equal_count)
    if num:
        task = Task(documents, num_ranks, _NO_CAP, "step")
        makespan = task.makespan(task.load(cell, num_ranks), 1)
        if makespan > _LEVEL and equal_count:  # huge documents: their ranks take the small ones
            ones, loads = np.ones(num, np.int64), np.zeros(num_ranks, np.int64)
            cell, _ = deal_under_cap(documents.work, ones, loads, num // num_ranks) or (cell, loads)
        cell = polish(task, cell, 1, far=makespan > _LEVEL, moves=not equal_count, quick=True)
    return Plan(documents, cell, num_ranks, 1 if num else 0, "step", equal_count=equal_count)


def _positive(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or number < 1:
        raise InvalidOption(f"{name}: found {value!r}, expected a whole number >= 1")
    return number
