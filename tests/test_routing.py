"""Measured routing in place of top_k."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopcalc import FlopCounter, InvalidBatch, Lora, Training

MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128, "num_local_experts": 4,
    "num_experts_per_tok": 2,
}  # fmt: skip
EXPERT = 3 * 64 * 96
TOKENS = 10

counts = st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=3, max_size=3)


@pytest.mark.parametrize("convention", ["standard", "exact"])
@given(counts)
def test_each_assignment_costs_one_expert(convention: str, routing: list[list[int]]) -> None:
    """6 FLOPs per weight of an expert and token that it computed; nothing else changes."""
    counter = FlopCounter(MIXTRAL, convention)
    without = counter([TOKENS]) - 6 * EXPERT * 3 * 2 * TOKENS
    assert counter([TOKENS], routing=routing) == without + 6 * EXPERT * sum(map(sum, routing))


def test_even_routing_is_top_k() -> None:
    counter = FlopCounter(MIXTRAL)
    assert counter([6, 4], routing=[[5, 5, 5, 5]] * 3) == counter([6, 4]) == counter([6, 4], routing=2)


def test_dropped_tokens_and_a_measured_mean_agree() -> None:
    """Of 20 assignments a layer, 2 are dropped: 1.8 experts a token."""
    counter = FlopCounter(MIXTRAL)
    assert counter([TOKENS], routing=[[9, 9, 0, 0]] * 3) == counter([TOKENS], routing=1.8)
    assert counter([TOKENS], routing=Fraction(9, 5)) == counter([TOKENS], routing=1.8)


def test_forms_of_one_routing_give_one_number() -> None:
    import torch

    counter, rows = FlopCounter(MIXTRAL), [[1, 2, 3, 4], [4, 4, 0, 0], [7, 0, 0, 1]]
    forms = [rows, np.array(rows), np.array(rows, dtype=np.int32), torch.tensor(rows), [np.array(row) for row in rows]]
    assert len({counter([TOKENS], routing=form) for form in forms}) == 1
    assert counter([TOKENS], routing=np.float64(1.5)) == counter([TOKENS], routing=torch.tensor(1.5))


@given(counts)
def test_the_breakdown_sums_to_the_total_and_shows_the_layers(routing: list[list[int]]) -> None:
    counter = FlopCounter(MIXTRAL, "exact")
    breakdown = counter.breakdown([TOKENS], routing=routing)
    assert breakdown.total() == counter([TOKENS], routing=routing)
    for layer, row in enumerate(routing):
        assert breakdown.by_module()[f"model.layers.{layer}.mlp.experts"] == 6 * EXPERT * sum(row)


def test_dense_layers_have_no_row() -> None:
    qwen = MIXTRAL | {
        "model_type": "qwen3_moe", "num_experts": 4, "moe_intermediate_size": 32, "mlp_only_layers": [1],
        "head_dim": 16,
    }  # fmt: skip
    counter = FlopCounter(qwen)
    assert counter([TOKENS], routing=[[5, 5, 5, 5]] * 2) == counter([TOKENS])


def test_expert_adapters_and_recomputed_experts_follow_the_routing() -> None:
    lora = Lora(r=4, target_modules=(), target_parameters=("gate_up_proj", "down_proj"))
    an_adapter = 4 * (64 + 192) + 4 * (96 + 64)
    counter = FlopCounter(MIXTRAL, training=Training(lora=lora, recompute="full"))
    dropped = [[4, 5, 5, 5], [5, 5, 5, 5], [5, 5, 5, 5]]
    assert counter([TOKENS]) - counter([TOKENS], routing=dropped) == 4 * EXPERT + 6 * an_adapter
    hardware = counter.hardware_flops([TOKENS]) - counter.hardware_flops([TOKENS], routing=dropped)
    assert hardware == 6 * EXPERT + 8 * an_adapter


@pytest.mark.parametrize(
    ("routing", "said"),
    [
        ([[5, 5, 5, 5]] * 2, "found 2 rows of 4 numbers, expected the tokens of each expert, 3 rows"),
        ([[5, 5, 5]] * 3, "found 3 rows of 3 numbers"),
        ([5, 5, 5, 5], r"routing\[0\]: found 5"),
        ([[5, 5, 5, -1]] * 3, r"routing\[0\]\[3\]: found -1"),
        ([[5, 5, 5, 0.5]] * 3, r"routing\[0\]\[3\]: found 0.5"),
        ([[5, 5, 5, 5], [5, 5, 5, 6], [0] * 4], r"routing\[1\]: found 21 tokens, expected at most 10 .* top_k = 2"),
        (2.1, r"found 2.1 experts a token, expected a number in \[0, 2\]"),
        (-0.1, "found -0.1 experts a token"),
        (float("nan"), "found nan experts a token"),
        ("all", "found 'all', expected tokens as"),
    ],
)
def test_routing_that_does_not_fit_is_said(routing: Any, said: str) -> None:
    with pytest.raises(InvalidBatch, match=said):
        FlopCounter(MIXTRAL)([TOKENS], routing=routing)


def test_a_dense_model_has_no_routing() -> None:
    with pytest.raises(InvalidBatch, match="this model has no routed experts"):
        FlopCounter({"model_type": "llama"})([TOKENS], routing=2)
