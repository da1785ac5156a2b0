"""Lengths in every form, exact at any size; bad ones are named errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flopcalc import FlopCounter, InvalidBatch

LLAMA = {"model_type": "llama", "num_hidden_layers": 2}
GPT_OSS = {"model_type": "gpt_oss", "num_hidden_layers": 3}
LENGTHS = [4096, 1, 0, 300, 17, 129, 128]


@pytest.mark.parametrize("config", [LLAMA, GPT_OSS])
@pytest.mark.parametrize("convention", ["standard", "exact", "torchtitan_0_3"])
def test_every_form_of_the_lengths_gives_one_number(config: dict[str, Any], convention: str) -> None:
    counter = FlopCounter(config, convention)
    expected = sum(counter([n]) for n in LENGTHS)
    forms = [
        LENGTHS,
        tuple(LENGTHS),
        iter(LENGTHS),
        [np.int32(n) for n in LENGTHS],
        np.array(LENGTHS),
        np.array(LENGTHS, dtype=np.uint16),
        np.array(LENGTHS, dtype=object),
        torch.tensor(LENGTHS),
        torch.tensor(LENGTHS, dtype=torch.int32),
        list(torch.tensor(LENGTHS)),
    ]
    assert [counter(form) for form in forms] == [expected] * len(forms)
    assert counter(LENGTHS * 200) == counter(np.array(LENGTHS * 200)) == 200 * expected
    assert counter.per_document(LENGTHS).tolist() == [counter([n]) for n in LENGTHS]
    assert counter.breakdown(LENGTHS).total() == expected


@pytest.mark.parametrize("empty", [[], (), np.array([]), torch.tensor([]), np.array([], dtype=np.int64)])
def test_an_empty_batch_costs_nothing(empty: Any) -> None:
    counter = FlopCounter(LLAMA)
    assert counter(empty) == 0
    assert counter.per_document(empty).tolist() == []
    assert counter([0, 0]) == 0


@pytest.mark.parametrize("convention", ["standard", "exact"])
@pytest.mark.parametrize("config", [LLAMA, GPT_OSS])
def test_totals_stay_exact_beyond_64_bits(config: dict[str, Any], convention: str) -> None:
    counter = FlopCounter(config, convention)
    one = counter([10**9])
    assert one > 2**63
    assert counter(np.full(1000, 10**9)) == 1000 * one
    assert counter([10**9] * 1000) == 1000 * one
    assert counter.per_document([10**9] * 3).tolist() == [one] * 3
    assert counter(np.full(1_000_000, 70_001)) == 1_000_000 * counter([70_001])
    assert counter([10**30]) > counter([10**29]) * 10


@given(st.lists(st.integers(0, 2**40), max_size=400), st.sampled_from(["standard", "exact"]))
def test_lists_and_arrays_agree(lengths: list[int], convention: str) -> None:
    counter = FlopCounter(GPT_OSS, convention)
    array = np.array(lengths, dtype=np.int64)
    assert counter(lengths) == counter(array) == sum(counter.per_document(array).tolist())


@pytest.mark.parametrize(
    "lengths",
    [
        [-1],
        [8.5],
        [8.0],
        ["8"],
        [None],
        [True],
        [[512, 1024]],
        8192,
        "8192",
        {"a": 1},
        None,
        np.array([1.5]),
        np.array([[1, 2]]),
        np.array([-5, 3]),
        np.array([True]),
        torch.tensor([1.0]),
        [1] * 300 + [-2],
        [float("nan")],
    ],
    ids=repr,
)
def test_bad_lengths_are_named(lengths: Any) -> None:
    with pytest.raises(InvalidBatch, match="seq_lens"):
        FlopCounter(LLAMA)(lengths)


def test_a_negative_length_is_named_with_its_place() -> None:
    with pytest.raises(InvalidBatch, match=r"seq_lens\[1\]: found -3"):
        FlopCounter(LLAMA)(np.array([5, -3]))


def test_images_of_a_text_model_are_an_error() -> None:
    with pytest.raises(InvalidBatch, match="images"):
        FlopCounter(LLAMA)([10], images=[4])


def test_flops_per_token_is_one_document() -> None:
    counter = FlopCounter(LLAMA)
    assert counter.flops_per_token(512) * 512 == counter([512])
    with pytest.raises(InvalidBatch):
        counter.flops_per_token(0)
