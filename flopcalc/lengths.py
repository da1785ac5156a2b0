"""Document lengths from the tensors of a batch.

Four things tell where documents begin and end: an attention mask, the positions of packed rows,
cumulative lengths, and segment ids. Each is turned into the lengths of the real documents; what
pads a batch is known apart. NumPy arrays, nested lists and torch tensors on any device are read
alike, padded on either side.

A training loop on an accelerator runs ahead of the device, and reading a tensor makes it wait.
`mark` therefore only queues elementwise work on the batch's device; `Marks.read` is the one read,
and can wait until the loop stops for its own log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from flopcalc.errors import InvalidBatch

__all__ = ["Documents", "Marks", "document_lengths", "mark", "mark_batch"]

_REAL, _JOINS, _STRANGE = 1, 2, 4


class Documents(NamedTuple):
    """The documents of a batch: the real tokens of each, and all positions that the batch holds."""

    lengths: list[int]
    positions: int

    @property
    def tokens(self) -> int:
        """Real tokens."""
        return sum(self.lengths)

    @property
    def padded_tokens(self) -> int:
        """Positions that hold padding."""
        return self.positions - self.tokens


class Marks(NamedTuple):
    """A batch's documents, still on the device. `values` is (rows, columns) of bit marks (1: a real
    token, 2: it continues the token before it, 4: a mask value that is neither 0 nor 1), or, where `cumulative`,
    cumulative lengths."""

    values: Any
    cumulative: bool = False

    def read(self) -> Documents:
        """The documents; waits for the device once. Raises InvalidBatch."""
        values = _numpy(self.values)
        return _from_cumulative(values) if self.cumulative else _from_marks(values)


def document_lengths(
    *,
    attention_mask: Any = None,
    position_ids: Any = None,
    cu_seqlens: Any = None,
    segment_ids: Any = None,
    padding_id: int | None = 0,
) -> Documents:
    """The documents of a batch, told by one of these (a mask may come with any of the last three rows).

    Args:
        attention_mask: (rows, columns) or (columns,); 1 or True at real tokens. Alone, each row is
            one document.
        position_ids: (rows, columns) or (columns,); a document begins at each row's start and
            wherever a position does not follow the one before it.
        cu_seqlens: (documents + 1,), from 0 on; padding that they leave out is not known.
        segment_ids: (rows, columns) or (columns,); equal neighbours are one document, `padding_id`
            is padding (None: no id is).

    Raises InvalidBatch.

    >>> document_lengths(attention_mask=[[0, 1, 1, 1], [0, 0, 0, 1]])
    Documents(lengths=[3, 1], positions=8)
    >>> document_lengths(position_ids=[[0, 1, 2, 0, 1, 0]]).lengths
    [3, 2, 1]
    >>> document_lengths(cu_seqlens=[0, 3, 5]).lengths
    [3, 2]
    >>> document_lengths(segment_ids=[[1, 1, 2, 0]])
    Documents(lengths=[2, 1], positions=4)
    """
    return mark(
        attention_mask=attention_mask,
        position_ids=position_ids,
        cu_seqlens=cu_seqlens,
        segment_ids=segment_ids,
        padding_id=padding_id,
    ).read()


def mark(
    *,
    attention_mask: Any = None,
    position_ids: Any = None,
    cu_seqlens: Any = None,
    segment_ids: Any = None,
    padding_id: int | None = 0,
) -> Marks:
    """As `document_lengths`, without reading from the device. Raises InvalidBatch for shapes that do
    not fit."""
    tellers = {"position_ids": position_ids, "cu_seqlens": cu_seqlens, "segment_ids": segment_ids}
    given = [name for name, value in tellers.items() if value is not None]
    if len(given) > 1 or not (given or attention_mask is not None):
        raise InvalidBatch(
            f"document lengths: found {', '.join(given) or 'nothing'}, expected an attention_mask or one of "
            f"{', '.join(tellers)}"
        )
    if cu_seqlens is not None:
        values = _array(cu_seqlens, "cu_seqlens")
        if values.ndim != 1 or len(values) == 0:
            raise InvalidBatch(
                f"cu_seqlens: found shape {tuple(values.shape)}, expected one dimension: 0 and the end of each document"
            )
        return Marks(values, cumulative=True)
    mask = None if attention_mask is None else _rows(attention_mask, "attention_mask")
    if not given:
        assert mask is not None
        return Marks(_byte((mask != 0) * _REAL + (mask == mask) * _JOINS + ((mask != 0) & (mask != 1)) * _STRANGE))
    ids = _rows(tellers[given[0]], given[0])
    step = 1 if position_ids is not None else 0
    joins = ids != ids
    joins[:, 1:] = ids[:, 1:] == ids[:, :-1] + step
    real = ids != padding_id if segment_ids is not None and padding_id is not None else ids == ids
    if mask is not None:
        if mask.shape != ids.shape:
            raise InvalidBatch(
                f"attention_mask: found shape {tuple(mask.shape)}, expected that of {given[0]}, {tuple(ids.shape)}"
            )
        real = real & (mask != 0)
    return Marks(_byte(real * _REAL + joins * _JOINS))


def mark_batch(batch: Mapping[str, Any]) -> Marks:
    """The marks of a batch as collators build it, from the first of these that it has: cu_seq_lens_q
    or cu_seqlens, seq_idx, position_ids (with its attention_mask), attention_mask, or the shape
    of input_ids, inputs_embeds or labels (no padding).

    Raises InvalidBatch where it has none of them.
    """
    mask, positions = batch.get("attention_mask"), batch.get("position_ids")
    if mask is not None and len(np.shape(mask)) != 2:
        mask = None  # a prepared 4-D mask says who sees whom, not what is padding
    for name in ("cu_seq_lens_q", "cu_seqlens"):
        if batch.get(name) is not None:
            return mark(cu_seqlens=batch[name])
    if batch.get("seq_idx") is not None:
        return mark(segment_ids=batch["seq_idx"], attention_mask=mask, padding_id=None)
    if positions is not None and len(np.shape(positions)) == 3 and len(positions) == 4:
        positions = positions[0]  # text positions, ahead of the three of multimodal rotary embedding
    if positions is not None and len(np.shape(positions)) == 2:
        return mark(position_ids=positions, attention_mask=mask)
    if mask is not None:
        return mark(attention_mask=mask)
    for name in ("input_ids", "inputs_embeds", "labels"):
        if (tensor := batch.get(name)) is not None:
            return mark(attention_mask=np.broadcast_to(np.True_, np.shape(tensor)[:2]))
    raise InvalidBatch(
        f"batch: found the keys {', '.join(map(str, batch))}, expected attention_mask, position_ids, cu_seqlens or "
        f"input_ids; tell the lengths yourself"
    )


def _from_marks(marks: Any) -> Documents:
    if (marks & _STRANGE).any():
        raise InvalidBatch(
            "attention_mask: found values beside 0 and 1, expected those two; ids of packed documents are segment_ids"
        )
    row, column = np.nonzero(marks & _REAL)
    begins = (marks[row, column] & _JOINS) == 0
    begins[:1] = True
    begins[1:] |= row[1:] != row[:-1]
    lengths = np.diff(np.append(np.flatnonzero(begins), len(row)))
    return Documents(lengths.tolist(), marks.size)


def _from_cumulative(values: Any) -> Documents:
    lengths = np.diff(values)
    if values[0] != 0 or (lengths < 0).any():
        raise InvalidBatch(f"cu_seqlens: found {values[:8].tolist()}..., expected 0 first and no value below the last")
    return Documents(lengths[lengths > 0].tolist(), int(values[-1]))


def _is_torch(value: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "torch" for kind in type(value).__mro__)


def _array(value: Any, name: str) -> Any:
    """A torch tensor or NumPy array; whole numbers in 64 bits, but for a mask."""
    if _is_torch(value):
        value, real = value.detach(), value.is_floating_point() or value.is_complex()
    else:
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise InvalidBatch(f"{name}: not an array: {error}") from None
        real = value.size > 0 and value.dtype.kind not in "biu"
    if name == "attention_mask":
        return value
    if real:
        raise InvalidBatch(f"{name}: found dtype {value.dtype}, expected whole numbers")
    return value.long() if _is_torch(value) else value.astype(np.int64, copy=False)


def _rows(value: Any, name: str) -> Any:
    """(rows, columns)"""
    array = _array(value, name)
    if array.ndim == 1:
        array = array[None, :]
    if array.ndim != 2:
        raise InvalidBatch(f"{name}: found shape {tuple(array.shape)}, expected (rows, columns)")
    return array


def _byte(marks: Any) -> Any:
    return marks.byte() if _is_torch(marks) else marks.astype(np.uint8)


def _numpy(values: Any) -> Any:
    return values.cpu().numpy() if _is_torch(values) else values
