"""Document lengths from masks, positions, cumulative lengths and segment ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcalc.errors import InvalidBatch
from flopcalc.lengths import Documents, document_lengths, mark, mark_batch

torch = pytest.importorskip("torch")


@pytest.fixture(params=["numpy", "torch", "list"])
def tensor(request):
    return {"numpy": np.array, "torch": torch.tensor, "list": lambda values: values}[request.param]


def test_a_mask_gives_one_document_a_row_padded_left_or_right(tensor):
    assert document_lengths(attention_mask=tensor([[1, 1, 1, 0], [1, 0, 0, 0]])) == Documents([3, 1], 8)
    assert document_lengths(attention_mask=tensor([[0, 1, 1, 1], [0, 0, 0, 1]])) == Documents([3, 1], 8)
    assert document_lengths(attention_mask=tensor([[True, True], [False, False]])) == Documents([2], 4)
    assert document_lengths(attention_mask=tensor([[1.0, 0.0]])) == Documents([1], 2)


def test_real_and_padded_tokens_are_told_apart():
    documents = document_lengths(attention_mask=[[1, 1, 1, 0], [1, 0, 0, 0]])
    assert (documents.tokens, documents.padded_tokens) == (4, 4)


def test_positions_that_restart_begin_a_document(tensor):
    assert document_lengths(position_ids=tensor([[0, 1, 2, 0, 1, 0]])) == Documents([3, 2, 1], 6)
    assert document_lengths(position_ids=tensor([0, 1, 0, 1])) == Documents([2, 2], 4)


def test_a_row_begins_a_document_even_where_its_positions_go_on(tensor):
    # the second row carries on at 4: attention does not cross rows
    assert document_lengths(position_ids=tensor([[0, 1, 2, 3], [4, 5, 0, 1]])).lengths == [4, 2, 2]


def test_positions_that_start_at_two_count_as_those_that_start_at_zero(tensor):
    assert document_lengths(position_ids=tensor([[2, 3, 4, 2, 3]])).lengths == [3, 2]


def test_a_mask_takes_the_padding_out_of_packed_positions(tensor):
    positions, mask = tensor([[0, 1, 2, 0, 1, 0, 0, 0]]), tensor([[1, 1, 1, 1, 1, 0, 0, 0]])
    assert document_lengths(position_ids=positions, attention_mask=mask) == Documents([3, 2], 8)
    # left padding, positions as generation builds them
    positions, mask = tensor([[1, 1, 0, 1, 2]]), tensor([[0, 0, 1, 1, 1]])
    assert document_lengths(position_ids=positions, attention_mask=mask) == Documents([3], 5)


def test_cumulative_lengths_are_differences_and_repeats_are_padding(tensor):
    assert document_lengths(cu_seqlens=tensor([0, 3, 5])) == Documents([3, 2], 5)
    assert document_lengths(cu_seqlens=tensor([0, 3, 5, 5, 5])) == Documents([3, 2], 5)


def test_segment_ids_number_documents_and_name_the_padding(tensor):
    assert document_lengths(segment_ids=tensor([[1, 1, 2, 0], [1, 2, 2, 2]])) == Documents([2, 1, 1, 3], 8)
    assert document_lengths(segment_ids=tensor([[0, 0, 1]]), padding_id=None) == Documents([2, 1], 3)
    assert document_lengths(segment_ids=tensor([[5, 5, -1]]), padding_id=-1) == Documents([2], 3)


def test_narrow_integers_do_not_wrap_around():
    positions = np.concatenate([np.arange(256), np.arange(2)]).astype(np.uint8)
    assert document_lengths(position_ids=positions).lengths == [256, 2]
    assert document_lengths(position_ids=torch.from_numpy(positions)).lengths == [256, 2]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=4), st.booleans())
def test_every_teller_gives_the_lengths_the_batch_was_packed_from(rows, left):
    width = max(map(sum, rows)) + 1
    positions, ids, mask = (np.zeros((len(rows), width), np.int64) for _ in range(3))
    for row, lengths in enumerate(rows):
        at = width - sum(lengths) if left else 0
        for number, length in enumerate(lengths, 1):
            positions[row, at : at + length] = range(length)
            ids[row, at : at + length] = number
            mask[row, at : at + length] = 1
            at += length
    expected = Documents([length for lengths in rows for length in lengths], len(rows) * width)
    assert document_lengths(position_ids=positions, attention_mask=mask) == expected
    assert document_lengths(segment_ids=ids) == expected
    assert document_lengths(attention_mask=mask) == Documents([sum(lengths) for lengths in rows], len(rows) * width)


def test_marking_reads_nothing_from_the_device():
    meta = torch.zeros((2, 8), dtype=torch.int64, device="meta")  # a read of a meta tensor is an error
    mark(position_ids=meta, attention_mask=meta)
    mark(segment_ids=meta)
    marks = mark(attention_mask=meta)
    with pytest.raises((NotImplementedError, RuntimeError)):
        marks.read()


def test_a_batch_is_read_by_the_first_field_that_tells():
    full = torch.ones(2, 4, dtype=torch.int64)
    packed = torch.tensor([[0, 1, 0, 1]])
    assert mark_batch({"input_ids": full}).read() == Documents([4, 4], 8)
    assert mark_batch({"inputs_embeds": torch.zeros(1, 3, 16)}).read() == Documents([3], 3)
    assert mark_batch({"input_ids": full, "attention_mask": full.tril()}).read() == Documents([1, 2], 8)
    assert mark_batch({"input_ids": packed, "position_ids": packed}).read() == Documents([2, 2], 4)
    cumulative = torch.tensor([0, 1, 4], dtype=torch.int32)
    assert mark_batch({"position_ids": packed, "cu_seq_lens_q": cumulative}).read() == Documents([1, 3], 4)
    assert mark_batch({"input_ids": packed, "seq_idx": torch.tensor([[0, 1, 1, 1]])}).read() == Documents([1, 3], 4)
    four = torch.stack([packed] * 4)  # text positions, then the three of multimodal rotary embedding
    assert mark_batch({"position_ids": four}).read() == Documents([2, 2], 4)
    assert mark_batch({"position_ids": four[:3], "attention_mask": full}).read() == Documents([4, 4], 8)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "found nothing"),
        ({"position_ids": [[0]], "segment_ids": [[1]]}, "position_ids, segment_ids"),
        ({"attention_mask": [[1, 2, 2]]}, "segment_ids"),
        ({"attention_mask": [[0.0, -3.4e38]]}, "beside 0 and 1"),
        ({"attention_mask": np.ones((1, 1, 4, 4))}, "(1, 1, 4, 4)"),
        ({"position_ids": [[0.5]]}, "float64"),
        ({"position_ids": [[0, 1], [0]]}, "not an array"),
        ({"position_ids": [[0, 1]], "attention_mask": [[1]]}, "(1, 1)"),
        ({"cu_seqlens": [1, 4]}, "0 first"),
        ({"cu_seqlens": [0, 4, 2]}, "0 first"),
        ({"cu_seqlens": [[0, 4]]}, "(1, 2)"),
        ({"cu_seqlens": []}, "(0,)"),
    ],
)
def test_what_cannot_be_read_is_named(fields, words):
    with pytest.raises(InvalidBatch, match=words.replace("(", r"\(").replace(")", r"\)")):
        document_lengths(**fields)


def test_a_batch_without_lengths_lists_its_keys():
    with pytest.raises(InvalidBatch, match="pixel_values"):
        mark_batch({"pixel_values": torch.zeros(3)})
