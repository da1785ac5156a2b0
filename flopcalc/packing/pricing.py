"""Documents with their prices, in the order in which they are dealt."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flopcalc.batch import read_lengths
from flopcalc.errors import InvalidBatch, InvalidOption

__all__ = ["Priced", "descends", "exact_sum", "price", "stable_order"]

_WORK_BITS = 62  # of the sum of all work (or tokens) and a bin's number together: they share an int64
_FLOAT_BITS = 52  # sums below are exact in float64 as well, which numpy.bincount adds in


class Priced(NamedTuple):
    """Documents in descending order of length, ties by place: arrays of one length. The cost falls
    with the length, unless a counter of one's own says otherwise."""

    index: Any
    """Place in the caller's list, int64."""
    tokens: Any
    """Tokens, rounded up to the multiple asked for, int64."""
    flops: Any
    """Exact cost: int64, or Python ints where 64 bits are too few."""
    work: Any
    """The cost in coarser units, int64, above zero: the sum of all, shifted by the bits of a bin's
    number, fits 62 bits. Dealing compares nothing but these."""

    def longer(self, tokens: int) -> int:
        """How many documents have more tokens: the first ones."""
        return len(self.tokens) - int(np.searchsorted(self.tokens[::-1], tokens, "right"))


def price(seq_lens: Any, counter: Any, *, multiple_of: int = 1, bins: int = 1) -> Priced:
    """Documents of these lengths, priced once by `counter.per_document`, to be dealt into at most
    `bins` bins or as many as there are documents.

    Raises InvalidBatch for lengths that are not whole numbers >= 0 or that are beyond any use,
    InvalidOption for a counter that cannot price documents.
    """
    if isinstance(counter, type) or not callable(getattr(counter, "per_document", None)):
        raise InvalidOption(f"counter: found {counter!r}, expected a counter; pass flopcalc.FlopCounter(config)")
    lengths = read_lengths(seq_lens)
    values, longest = (lengths, max(lengths, default=0)) if isinstance(lengths, list) else lengths
    most = min(1 << _FLOAT_BITS, 1 << _WORK_BITS >> max(bins, len(values)).bit_length())
    if (longest + multiple_of) * len(values) >= most:
        raise InvalidBatch(f"seq_lens: found a document of {longest} tokens, expected lengths that can be run")
    tokens = np.asarray(values, dtype=np.int64)
    if multiple_of > 1:
        tokens = -(-tokens // multiple_of) * multiple_of
    index = stable_order(tokens, descending=True)
    tokens = tokens[index]
    flops = np.asarray(counter.per_document(tokens))
    return Priced(index, tokens, flops, _work(flops, max(bins, len(index))))


def descends(values: Any) -> bool:
    """Whether no value is larger than the one before it."""
    return not (values[1:] > values[:-1]).any()


def stable_order(values: Any, *, descending: bool = False) -> Any:
    """Stable argsort of whole numbers >= 0: as `numpy.argsort` gives it, but by a radix sort of 16 bits
    or by one sort of unique integers where they fit, which is several times faster."""
    if len(values) == 0:
        return np.arange(0)
    lowest, highest, bits = int(values.min()), int(values.max()), len(values).bit_length()
    if highest - lowest < 1 << 16:  # differences, which wrap to what they are
        near, origin = values.astype(np.uint16), np.uint16((highest if descending else lowest) & 0xFFFF)
        return np.argsort(origin - near if descending else near - origin, kind="stable")
    values = highest - values if descending else values - lowest
    if highest - lowest >> (63 - bits):
        return np.argsort(values, kind="stable")
    keys = (values << bits) | np.arange(len(values))
    keys.sort()
    return keys & ((1 << bits) - 1)


def _work(flops: Any, bins: int) -> Any:
    limit = min(_WORK_BITS - bins.bit_length(), _FLOAT_BITS)
    shift = max(0, exact_sum(flops).bit_length() + 1 - limit)
    work = (flops >> shift).astype(np.int64, copy=False)
    work += 1
    return work


def exact_sum(values: Any) -> int:
    """Sum of an array of non-negative whole numbers, whatever its size."""
    if values.dtype == object:
        return sum(values.tolist())
    if int(values.max(initial=0)) * len(values) < 1 << 63:
        return int(values.sum())
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
