"""What `pack` and `balance` give back: who runs which documents, and how even that is."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np

from flopcalc.packing.bounds import lower_bounds
from flopcalc.packing.pricing import Priced, stable_order

__all__ = ["Plan", "Sync"]

Sync = Literal["micro_batch", "step"]


class Plan:
    """Documents spread over ranks and, on each rank, over the same number of micro-batches.

    A micro-batch lists the places of its documents in the list that was given, ascending. Costs are
    exact FLOPs; tokens are those run, with the padding that was asked for. A plan of no documents has
    no micro-batches.
    """

    def __init__(
        self,
        documents: Priced,
        cell: Any,
        num_ranks: int,
        num_micro_batches: int,
        sync: Sync,
        *,
        max_tokens: int | None = None,
        pad_to_longest: bool = False,
        equal_count: bool = False,
    ) -> None:
        """`cell` is rank * num_micro_batches + step of each of `documents`."""
        self.num_ranks = num_ranks
        self.num_micro_batches = num_micro_batches
        """Micro-batches of each rank."""
        self.sync: Sync = sync
        """Where ranks wait for each other: at every `micro_batch`, or once a `step`."""
        self.max_tokens = max_tokens
        """The cap of a micro-batch; None for a split without one."""
        self._documents, self._cell = documents, cell
        self._padded, self._equal_count = pad_to_longest, equal_count

    # --- who runs what ---------------------------------------------------------------------------

    @cached_property
    def micro_batches(self) -> list[list[list[int]]]:
        """`micro_batches[rank][step]`: the documents of that micro-batch."""
        order, ends = self._order.tolist(), np.cumsum(self._counts).tolist()
        cells = [order[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        per_rank = self.num_micro_batches
        return [cells[rank * per_rank : (rank + 1) * per_rank] for rank in range(self.num_ranks)]

    @property
    def ranks(self) -> list[list[int]]:
        """`ranks[rank]`: all documents of that rank, micro-batch by micro-batch."""
        return [[document for batch in batches for document in batch] for batches in self.micro_batches]

    def __eq__(self, other: object) -> bool:
        """Whether the same ranks run the same micro-batches."""
        return isinstance(other, Plan) and self.micro_batches == other.micro_batches

    __hash__ = None  # type: ignore[assignment]

    # --- what it costs ---------------------------------------------------------------------------

    @cached_property
    def tokens(self) -> Any:
        """Tokens of each micro-batch, (ranks, micro-batches)."""
        return self._by_cell(self._documents.tokens)

    @cached_property
    def flops(self) -> Any:
        """FLOPs of each micro-batch, (ranks, micro-batches): int64, or Python ints where 64 bits are
        too few."""
        return self._by_cell(self._documents.flops)

    @property
    def rank_tokens(self) -> list[int]:
        """Tokens of each rank."""
        return list(map(sum, self.tokens.tolist()))

    @property
    def rank_flops(self) -> list[int]:
        """FLOPs of each rank."""
        return list(map(sum, self.flops.tolist()))

    @property
    def total_flops(self) -> int:
        """FLOPs of all ranks."""
        return sum(self.rank_flops)

    @property
    def makespan(self) -> int:
        """FLOPs that the step lasts: the slowest rank's, at each micro-batch or once a step."""
        if self.sync == "step":
            return max(self.rank_flops)
        return sum(map(max, zip(*self.flops.tolist(), strict=True)))

    @property
    def imbalance(self) -> float:
        """Makespan over the mean of the ranks' FLOPs; 1.0 is perfect."""
        return self.makespan * self.num_ranks / self.total_flops if self.total_flops else 1.0

    @property
    def idle_share(self) -> float:
        """Share of the ranks' time that is spent waiting for the slowest."""
        return 1 - 1 / self.imbalance

    # --- what would be possible ------------------------------------------------------------------

    @cached_property
    def lower_bounds(self) -> dict[str, int]:
        """FLOPs below which no plan's makespan can fall: by the `mean` of the ranks, by the `largest`
        documents, by the `cap` where ranks meet at every micro-batch, by equal `count` where asked for."""
        cap = self.max_tokens if self.sync == "micro_batch" else None
        return lower_bounds(self._documents, self.num_ranks, cap=cap, equal_count=self._equal_count)

    @property
    def lower_bound(self) -> int:
        """The highest of `lower_bounds`."""
        return max(self.lower_bounds.values())

    @property
    def excess(self) -> float:
        """How far the makespan lies above the lower bound, as a share of it."""
        return self.makespan / self.lower_bound - 1 if self.lower_bound else 0.0

    def summary(self) -> str:
        """The plan in a few lines."""
        cap = f" of at most {self.max_tokens:,} tokens" if self.max_tokens is not None else ""
        title = (
            f"{_count(len(self._cell), 'document')} on {_count(self.num_ranks, 'rank')}, "
            f"{_count(self.num_micro_batches, 'micro-batch')} each{cap}"
        )
        if len(self._cell) == 0:
            return title
        tokens, flops = self.tokens, self.flops
        where = "of every micro-batch, summed" if self.sync == "micro_batch" else "of the step"
        by = max(self.lower_bounds, key=self.lower_bounds.__getitem__)
        return "\n".join(
            [
                title,
                f"tokens       {sum(self.rank_tokens):,} in all, {tokens.min():,} to {tokens.max():,} a micro-batch",
                f"FLOPs        {self.total_flops:.6g} in all, {flops.min():.6g} to {flops.max():.6g} a micro-batch",
                f"makespan     {self.makespan:.6g} FLOPs: those of the slowest rank {where}",
                f"lower bound  {self.lower_bound:.6g} FLOPs ({by}): the makespan is {self.excess:.3%} above it",
                f"imbalance    {self.imbalance:.6f} (max / mean): {self.idle_share:.3%} of the ranks' time is idle",
            ]
        )

    @cached_property
    def _counts(self) -> Any:
        """How many documents each cell has."""
        return np.bincount(self._cell, minlength=self.num_ranks * self.num_micro_batches)

    @cached_property
    def _order(self) -> Any:
        """Places of the documents, by cell and ascending in each."""
        by_place = np.empty_like(self._cell)
        by_place[self._documents.index] = self._cell
        return stable_order(by_place)

    def _by_cell(self, values: Any) -> Any:
        """Sums over each cell; where micro-batches are padded, its largest value times its documents."""
        shape = self.num_ranks, self.num_micro_batches
        held = self._counts > 0
        if len(values) and int(values.max()) * int(self._counts.max()) >= 2**63:
            values = values.astype(object)
        by_place = np.empty_like(values)
        by_place[self._documents.index] = values
        starts = (np.cumsum(self._counts) - self._counts)[held]
        sums = np.zeros(len(held), values.dtype)
        if self._padded:
            sums[held] = np.maximum.reduceat(by_place[self._order], starts) * self._counts[held]
        elif len(values):
            sums[held] = np.add.reduceat(by_place[self._order], starts)
        return sums.reshape(shape)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"
