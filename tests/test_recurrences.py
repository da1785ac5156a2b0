"""Recurrences: what one token costs, derived from the modelling code of transformers and proven there.

The state updates are written here as matrix products, shown to compute what the modelling code
computes, and counted by torch's operator counter. What a model costs per token is added up by hand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

from flopcalc import CONVENTIONS, FlopCounter, describe

TOKENS = 5

DELTA = {
    "model_type": "qwen3_5_text",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 1,
    "layer_types": ["linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
    "linear_conv_kernel_dim": 4,
}
MAMBA2 = {
    "model_type": "mamba2",
    "vocab_size": 32,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "expand": 2,
    "num_heads": 4,
    "head_dim": 8,
    "state_size": 6,
    "n_groups": 2,
    "conv_kernel": 3,
}
NEMOTRON = {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "M",
    "mamba_num_heads": 4,
    "mamba_head_dim": 8,
    "ssm_state_size": 6,
    "n_groups": 2,
}
FALCON = {
    "model_type": "falcon_h1",
    "num_hidden_layers": 1,
    "mamba_d_ssm": 32,
    "mamba_n_heads": 4,
    "mamba_d_state": 6,
    "mamba_n_groups": 2,
}


def delta_rule_as_products(q: Any, k: Any, v: Any, decay: Any, rate: Any) -> Any:
    """The gated delta rule, (heads, tokens, dim) in, token by token. Three products with the state of
    key_dim x value_dim per head; the decay and the correction are elementwise."""
    state = torch.zeros(len(q), q.shape[-1], v.shape[-1])
    outputs = []
    for t in range(q.shape[1]):
        query, key, value = q[:, t, None], k[:, t, None], v[:, t, None]
        state = state * decay[:, t, None, None].exp()
        remembered = key @ state  # what the state holds under this key
        correction = (value - remembered) * rate[:, t, None, None]
        state = state + key.mT @ correction  # the rank-one update
        outputs.append(query @ state)  # the read-out
    return torch.cat(outputs, dim=1)


def mamba2_as_products(x: Any, step: Any, a: Any, b: Any, c: Any) -> Any:
    """The Mamba-2 scan, (heads, tokens, dim) in, token by token. Two products with the state of
    head_dim x state per head; the decay is elementwise."""
    state = torch.zeros(len(x), x.shape[-1], b.shape[-1])
    outputs = []
    for t in range(x.shape[1]):
        dt = step[:, t, None, None]
        state = state * (dt * a[:, None, None]).exp() + x[:, t, :, None] @ (dt * b[:, t, None])  # rank-one update
        outputs.append((state @ c[:, t, :, None]).mT)  # the read-out
    return torch.cat(outputs, dim=1)


def counted(run: Any, *inputs: Any) -> tuple[Any, int]:
    with FlopCounterMode(display=False) as counter:
        output = run(*inputs)
    return output, counter.get_total_flops()


def of_kind(config: dict[str, Any], kind: str, convention: str = "standard", phase: Any = "forward") -> int:
    return FlopCounter(config, convention, phase).breakdown([TOKENS]).by_kind()[kind]


def test_the_gated_delta_rule_is_three_products_with_the_state_of_each_value_head() -> None:
    torch.manual_seed(0)
    key_heads, value_heads, key_dim, value_dim = 2, 4, 8, 6
    q, k = torch.randn(2, 1, TOKENS, key_heads, key_dim)
    k = k / k.norm(dim=-1, keepdim=True)
    v = torch.randn(1, TOKENS, value_heads, value_dim)
    decay, rate = -torch.rand(1, TOKENS, value_heads), torch.rand(1, TOKENS, value_heads)
    real, _ = torch_chunk_gated_delta_rule(q, k, v, decay, rate, chunk_size=4)

    repeated = [x.repeat_interleave(value_heads // key_heads, dim=2)[0].transpose(0, 1) for x in (q * key_dim**-0.5, k)]
    ours, flops = counted(delta_rule_as_products, *repeated, v[0].transpose(0, 1), decay[0].T, rate[0].T)
    torch.testing.assert_close(ours.transpose(0, 1), real[0], atol=1e-5, rtol=1e-5)
    # 3 products of 2 * 8 * 6 FLOPs, 4 value heads, 5 tokens; the 2 key heads do not show
    assert flops == 5_760 == of_kind(DELTA, "delta_rule")
    # backward, each product becomes two
    assert of_kind(DELTA, "delta_rule", phase="train") == of_kind(DELTA, "delta_rule", "exact", "train") == 17_280


@pytest.mark.parametrize("config", [MAMBA2, NEMOTRON, FALCON], ids=lambda config: config["model_type"])
def test_mamba2_is_two_products_with_the_state_of_each_head(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    heads, head_dim, state, groups = 4, 8, 6, 2
    x = torch.randn(1, TOKENS, heads, head_dim)
    step, a = torch.rand(1, TOKENS, heads), -torch.rand(heads)
    b, c = torch.randn(2, 1, TOKENS, groups, state)
    real = mamba2_chunk_scan(x, step, a, b, c, chunk_size=4)

    b, c = (y.repeat_interleave(heads // groups, dim=2)[0].transpose(0, 1) for y in (b, c))
    ours, flops = counted(mamba2_as_products, x[0].transpose(0, 1), step[0].T, a, b, c)
    torch.testing.assert_close(ours.transpose(0, 1), real[0], atol=1e-5, rtol=1e-5)
    # 2 products of 2 * 8 * 6 FLOPs, 4 heads, 5 tokens; the 2 groups do not show
    assert flops == 3_840 == of_kind(config, "mamba2")
    assert of_kind(config, "mamba2", phase="train") == of_kind(config, "mamba2", "exact", "train") == 11_520


def test_a_delta_rule_layer_added_up_by_hand() -> None:
    # matrices: in_proj_qkv 16 x (2 * 2*8 + 4*6) = 896, in_proj_z 16 x 24 = 384, in_proj_b and in_proj_a
    # 16 x 4 = 64 each, out_proj 24 x 16 = 384, MLP 3 * 16 x 40 = 1920, head 16 x 32 = 512
    assert describe(DELTA).num_matmul_params() == 4_224
    # and vectors: conv 56 channels * 4 taps = 224, dt_bias 4, A_log 4, gated norm 6, layer norms 2 * 16, norm 16
    assert describe(DELTA).num_active_params() == 4_224 + 286
    # 6 * 4510 for the weights, 18 * 4 heads * 8 * 6 for the recurrence
    assert FlopCounter(DELTA)([TOKENS]) == TOKENS * (27_060 + 3_456)
    assert FlopCounter(DELTA, "exact")([TOKENS]) == TOKENS * (25_344 + 3_456)
    assert FlopCounter(DELTA, "torchtitan_0_3")([TOKENS]) == TOKENS * 27_060  # knows no recurrence


def test_a_mamba2_layer_added_up_by_hand() -> None:
    # matrices: in_proj 16 x (gate 32 + x 32 + B and C 2 * 2*6 + steps 4) = 1472, out_proj 32 x 16, head 16 x 32
    assert describe(MAMBA2).num_matmul_params() == 2_496
    # and vectors: conv 56 channels * (3 taps + bias) = 224, dt_bias, A_log, D 4 each, gated norm 32, norms 2 * 16
    assert describe(MAMBA2).num_active_params() == 2_496 + 300
    # 6 * 2796 for the weights, 12 * 4 heads * 8 * 6 for the scan
    assert FlopCounter(MAMBA2)([TOKENS]) == TOKENS * (16_776 + 2_304)
    assert FlopCounter(MAMBA2, "exact")([TOKENS]) == TOKENS * (14_976 + 2_304)


PURE = [DELTA, MAMBA2, NEMOTRON | {"hybrid_override_pattern": "M-EM"}]
LENGTHS = st.integers(0, 2**40)


@pytest.mark.parametrize("config", PURE, ids=lambda config: config["model_type"])
@pytest.mark.parametrize("convention", CONVENTIONS)
@settings(max_examples=20)
@given(LENGTHS, LENGTHS)
def test_a_recurrent_model_costs_the_same_however_its_tokens_are_cut(
    config: dict[str, Any], convention: str, first: int, second: int
) -> None:
    counter = FlopCounter(config, convention)
    assert counter([first + second]) == counter([first, second]) == counter([first]) + counter([second])


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_only_the_attending_layers_of_a_hybrid_bend(first: int, second: int) -> None:
    config = DELTA | {"num_hidden_layers": 8, "layer_types": None, "num_attention_heads": 2, "head_dim": 4}
    counter = FlopCounter(config | {"num_key_value_heads": 1})
    joined = counter([first + second]) - counter([first, second])
    # layers 4 and 8 attend: 12 * 2 heads * 4 per pair, and joining two documents adds 2 * first * second pairs
    assert joined == 2 * 96 * 2 * first * second


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_the_state_belongs_to_the_value_heads(key_heads: int) -> None:
    assert of_kind(DELTA | {"linear_num_key_heads": key_heads}, "delta_rule") == 5_760


def test_each_mamba_layer_adds_the_same_wherever_it_stands() -> None:
    patterns = ["M*", "MM*", "*MM", "M*M", "MMM*"]
    flops = [FlopCounter(NEMOTRON | {"hybrid_override_pattern": pattern})([100]) for pattern in patterns]
    assert flops[1] == flops[2] == flops[3]
    assert flops[1] - flops[0] == flops[4] - flops[3] > 0


def test_falcon_h1_attends_and_scans_in_every_layer() -> None:
    kinds = FlopCounter(FALCON | {"num_hidden_layers": 3}, phase="forward").breakdown([TOKENS]).by_kind()
    assert kinds["mamba2"] == 3 * 3_840
    assert kinds["attention"] == 3 * TOKENS * TOKENS * 4 * 32 * 128  # 32 query heads of 4096 / 32


def test_the_documented_constants_are_those_of_the_presets() -> None:
    text = (Path(__file__).parents[1] / "docs" / "recurrences.md").read_text(encoding="utf-8")
    table = text.partition("## The constants")[2]
    documented: dict[str, list[int]] = {}
    for row in re.findall(r"^\| (`.*) \|$", table, re.MULTILINE):
        names, *cells = row.split(" | ")
        constants = [int(re.match(r"\d+", cell)[0]) for cell in cells]  # type: ignore[index]
        documented |= dict.fromkeys(re.findall(r"`([\w-]+)`", names), constants)
    assert "all others: weights only | 0 | 0 | 0" in table
    for name, convention in CONVENTIONS.items():
        delta_rule, mamba2, others = documented.pop(name, [0, 0, 0])
        assert (3 * convention.delta_rule, 3 * convention.mamba2) == (delta_rule, mamba2), name
        assert 3 * convention.mamba == 3 * convention.linear_attention == others, name
    assert not documented, "no such preset"
