"""Reading a batch: document lengths as lists, numpy arrays or torch tensors of whole numbers; images
as patch counts or grids."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from flopcalc.errors import InvalidBatch

__all__ = ["Grid", "read_images", "read_lengths"]

_LIST_AT_MOST = 256  # longer batches are faster in numpy
_INT64_MAX = 2**63 - 1


def read_lengths(seq_lens: Any, name: str = "seq_lens") -> Any:
    """Document lengths in tokens as a short list of ints or a 1-D int64 array, checked.

    Ints beyond 64 bits stay in a list. Raises InvalidBatch for anything that is not a flat
    sequence of whole numbers >= 0.
    """
    if type(seq_lens) is not list:
        if type(seq_lens).__module__.partition(".")[0] == "torch":
            seq_lens = seq_lens.detach().cpu().numpy()
        if isinstance(seq_lens, np.ndarray):
            return _read_array(seq_lens, name)
        if isinstance(seq_lens, (str, bytes, dict)) or not isinstance(seq_lens, Iterable):
            raise InvalidBatch(
                f"{name}: found {seq_lens!r}, expected the lengths of the documents in tokens, "
                f"as [8192] or an integer array"
            )
        seq_lens = list(seq_lens)
    if not set(map(type, seq_lens)) <= {int}:
        seq_lens = [_whole(length, i, name) for i, length in enumerate(seq_lens)]
    if len(seq_lens) > _LIST_AT_MOST and max(seq_lens) <= _INT64_MAX:
        return _read_array(np.array(seq_lens, dtype=np.int64), name)
    if seq_lens and min(seq_lens) < 0:
        raise _negative(min(seq_lens), seq_lens.index(min(seq_lens)), name)
    return seq_lens


def _read_array(array: Any, name: str) -> Any:
    if array.ndim != 1:
        raise InvalidBatch(
            f"{name}: found an array of shape {array.shape}, expected one dimension: the length of each document"
        )
    if array.size == 0:
        return []
    if array.dtype == object:
        return read_lengths(array.tolist(), name)
    if array.dtype.kind not in "iu":
        raise InvalidBatch(f"{name}: found dtype {array.dtype}, expected whole numbers; convert with .astype(int)")
    if array.dtype != np.int64:
        if array.dtype == np.uint64 and int(array.max()) > _INT64_MAX:
            return array.tolist()
        array = array.astype(np.int64)
    if (lowest := int(array.min())) < 0:
        raise _negative(lowest, int(array.argmin()), name)
    return array


def _whole(length: Any, index: int, name: str) -> int:
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
        images = images.detach().cpu().numpy()
    if isinstance(images, np.ndarray):
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
