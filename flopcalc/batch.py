"""Reading a batch: document lengths as lists, numpy arrays or torch tensors of whole numbers; images
as patch counts or grids."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

from flopcalc.errors import InvalidBatch

__all__ = ["Grid", "Long", "read_images", "read_lengths"]

_LIST_AT_MOST = 256  # longer batches are faster in numpy
_INT64_MAX = 2**63 - 1


class Long(NamedTuple):
    """A long batch: its lengths as a 1-D int64 array, and the longest of them."""

    values: Any
    longest: int


def read_lengths(seq_lens: Any, name: str = "seq_lens") -> list[int] | Long:
    """Document lengths in tokens, checked; a short batch and numbers beyond 64 bits as a list.

    Raises InvalidBatch for anything that is not a flat sequence of whole numbers >= 0.
    """
    lengths: list[int]
    if type(seq_lens) is list:
        if 0 < len(seq_lens) <= _LIST_AT_MOST and type(seq_lens[0]) is int:
            try:  # the call of every step: C refuses fractions, text and negative numbers at once
                array("Q", lengths := seq_lens)
                return lengths
            except (TypeError, OverflowError):
                pass  # named below, or a whole number beyond 64 bits
    else:
        import numpy as np

        if type(seq_lens).__module__.partition(".")[0] == "torch":
            try:
                seq_lens = seq_lens.detach().cpu().numpy()
            except (TypeError, RuntimeError) as error:  # a dtype that numpy lacks, or no data (meta)
                raise InvalidBatch(f"{name}: found a tensor that cannot be read: {error}") from None
        if isinstance(seq_lens, np.ndarray):
            return _read_array(seq_lens, name)
        if isinstance(seq_lens, (str, bytes, dict, set, frozenset)) or not isinstance(seq_lens, Iterable):
            raise InvalidBatch(
                f"{name}: found {seq_lens!r}, expected the lengths of the documents in tokens, "
                f"as [8192] or an integer array"
            )
        seq_lens = list(seq_lens)
    plain = set(map(type, seq_lens)) <= {int}
    lengths = seq_lens if plain else [_whole(length, i, name) for i, length in enumerate(seq_lens)]
    if lengths and (lowest := min(lengths)) < 0:
        raise _negative(lowest, lengths.index(lowest), name)
    if len(lengths) > _LIST_AT_MOST and max(lengths) <= _INT64_MAX:
        import numpy as np

        return _read_array(np.array(lengths, dtype=np.int64), name)
    return lengths


def _read_array(values: Any, name: str) -> list[int] | Long:
    if values.ndim != 1:
        raise InvalidBatch(
            f"{name}: found an array of shape {values.shape}, expected one dimension: the length of each document"
        )
    if values.size == 0:
        return []
    if values.dtype == object:
        return read_lengths(values.tolist(), name)
    if values.dtype.kind not in "iu":
        raise InvalidBatch(f"{name}: found dtype {values.dtype}, expected whole numbers; convert with .astype(int)")
    if values.dtype != "int64":
        if values.dtype == "uint64" and int(values.max()) > _INT64_MAX:
            return list(values.tolist())
        values = values.astype("int64")
    longest = int(values.view("uint64").max())  # one pass: a negative number is a huge unsigned one
    if longest > _INT64_MAX:
        raise _negative(int(values.min()), int(values.argmin()), name)
    return Long(values, longest)


def _whole(length: Any, index: int, name: str) -> int:
    import numpy as np

    if not isinstance(length, (bool, np.bool_)):
        try:
            return operator.index(length)
        except TypeError:
            pass
    raise InvalidBatch(f"{name}[{index}]: found {length!r}, expected a whole number of tokens")


def _negative(length: int, index: int, name: str) -> InvalidBatch:
    return InvalidBatch(f"{name}[{index}]: found {length}, expected a number of tokens >= 0")


class Grid(NamedTuple):
    """One image or video: `frames` frames of `patches` patches each, height x width where known."""

    frames: int
    patches: int
    height: int | None = None
    width: int | None = None


def read_images(images: Any, name: str = "images") -> list[Grid]:
    """Grids of images given as patch counts, or as (frames, height, width) in patches.

    Raises InvalidBatch for anything else.
    """
    if type(images).__module__.partition(".")[0] == "torch":
        images = images.detach().cpu()
    if hasattr(images, "tolist"):
        images = images.tolist()
    if isinstance(images, (str, bytes, dict)) or not isinstance(images, Iterable):
        raise InvalidBatch(f"{name}: found {images!r}, expected patch counts, or (frames, height, width) of each image")
    grids = []
    for i, image in enumerate(images):
        if isinstance(image, (tuple, list)) or getattr(image, "ndim", 0) == 1:
            sides = [_whole(side, i, name) for side in image]
            if len(sides) != 3 or min(sides) < 0:
                raise InvalidBatch(f"{name}[{i}]: found {image!r}, expected (frames, height, width) in patches")
            frames, height, width = sides
            grids.append(Grid(frames, height * width, height, width))
        else:
            patches = _whole(image, i, name)
            if patches < 0:
                raise _negative(patches, i, name)
            grids.append(Grid(1, patches))
    return grids
