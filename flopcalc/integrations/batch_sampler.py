"""A batch sampler for torch's DataLoader whose batches are micro-batches of a packing plan:

    from torch.utils.data import DataLoader
    from flopcalc.integrations.batch_sampler import FlopBatchSampler

    sampler = FlopBatchSampler.from_dataset(dataset, max_tokens=65536, counter=counter, documents_per_step=512)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=...)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader: ...

Every rank builds the same plan and takes its own part, so nothing is communicated; do not let a
trainer shard the loader once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch.distributed as dist
from torch.utils.data import Sampler

from flopcalc.batch import read_lengths
from flopcalc.errors import InvalidBatch, InvalidOption
from flopcalc.packing import Sync, pack

__all__ = ["FlopBatchSampler", "dataset_lengths"]


class FlopBatchSampler(Sampler[list[int]]):
    """Micro-batches of one rank, as lists of dataset indices: over all ranks each document once an
    epoch, and the same number of micro-batches on every rank.

    Args:
        seq_lens: tokens of each document of the dataset.
        max_tokens, counter, sync, multiple_of, pad_to_longest: as `flopcalc.pack` takes them.
        num_ranks, rank: by default those of torch.distributed; 1 and 0 where it is not initialised.
        documents_per_step: about how many documents all ranks together run between two optimizer steps; each
            such group has a plan of its own, whose micro-batches `steps` lists. By default all
            documents are one group.
        shuffle: documents are drawn anew each epoch, and micro-batches come in random order; the same
            on every rank.
        seed: of the shuffling, with the epoch.

    Raises what `pack` raises when the epoch is planned.
    """

    def __init__(
        self,
        seq_lens: Any,
        *,
        max_tokens: int,
        counter: Any,
        num_ranks: int | None = None,
        rank: int | None = None,
        documents_per_step: int | None = None,
        sync: Sync = "micro_batch",
        multiple_of: int = 1,
        pad_to_longest: bool = False,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        distributed = dist.is_available() and dist.is_initialized()
        self.num_ranks = num_ranks if num_ranks is not None else dist.get_world_size() if distributed else 1
        self.rank = rank if rank is not None else dist.get_rank() if distributed else 0
        if not 0 <= self.rank < self.num_ranks:
            raise InvalidOption(f"rank: found {self.rank}, expected 0 to {self.num_ranks - 1}")
        if documents_per_step is not None and documents_per_step < 1:
            raise InvalidOption(f"documents_per_step: found {documents_per_step}, expected a whole number >= 1")
        lengths = read_lengths(seq_lens)
        self.seq_lens = np.asarray(lengths if isinstance(lengths, list) else lengths.values, dtype=np.int64)
        self.documents_per_step = documents_per_step
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0
        self._options = {
            "max_tokens": max_tokens,
            "num_ranks": self.num_ranks,
            "counter": counter,
            "sync": sync,
            "multiple_of": multiple_of,
            "pad_to_longest": pad_to_longest,
        }
        self._steps: list[list[list[int]]] | None = None

    @classmethod
    def from_dataset(cls, dataset: Any, column: str = "input_ids", **options: Any) -> FlopBatchSampler:
        """A sampler of a Hugging Face `datasets.Dataset`; see `dataset_lengths`."""
        return cls(dataset_lengths(dataset, column), **options)

    def set_epoch(self, epoch: int) -> None:
        """Draw anew, as `DistributedSampler.set_epoch` does."""
        self.epoch, self._steps = epoch, None

    @property
    def steps(self) -> list[list[list[int]]]:
        """This rank's micro-batches, by optimizer step."""
        if self._steps is None:
            self._steps = [self._plan(np.sort(group), i) for i, group in enumerate(self._groups())]
        return self._steps

    def __iter__(self) -> Iterator[list[int]]:
        return (batch for step in self.steps for batch in step)

    def __len__(self) -> int:
        return sum(map(len, self.steps))

    def _groups(self) -> list[Any]:
        num = len(self.seq_lens)
        order = np.random.default_rng([self.seed, self.epoch]).permutation(num) if self.shuffle else np.arange(num)
        return np.array_split(order, max(1, num // (self.documents_per_step or max(num, 1))))

    def _plan(self, group: Any, number: int) -> list[list[int]]:
        batches = pack(self.seq_lens[group], **self._options).micro_batches[self.rank]
        order = range(len(batches))
        if self.shuffle:  # a plan puts the largest first
            order = np.random.default_rng([self.seed, self.epoch, number]).permutation(len(batches)).tolist()
        return [group[batches[i]].tolist() for i in order]


def dataset_lengths(dataset: Any, column: str = "input_ids") -> Any:
    """Lengths of a `datasets.Dataset`'s documents, an int64 array: of the lists in `column`, or the
    numbers in it. Read from Arrow batch by batch; no document becomes a Python list.

    Raises InvalidOption where there is no such column, InvalidBatch where a document has no length.
    """
    if column not in (getattr(dataset, "column_names", None) or ()) or not hasattr(dataset, "with_format"):
        raise InvalidOption(f"column: found no {column!r} in {dataset!r:.200}; expected a column of a datasets.Dataset")
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = [np.empty(0, np.int64)]
    for table in dataset.select_columns([column]).with_format("arrow").iter(batch_size=10_000):
        values = table[column]
        if not pa.types.is_integer(values.type):
            try:
                values = pc.list_value_length(values)
            except pa.ArrowNotImplementedError:
                raise InvalidOption(
                    f"column: {column!r} holds {values.type}, expected lists or whole numbers"
                ) from None
        if values.null_count:
            raise InvalidBatch(f"{column}: found a document without a value, expected one in each")
        lengths.append(values.to_numpy().astype(np.int64))
    return np.concatenate(lengths)
