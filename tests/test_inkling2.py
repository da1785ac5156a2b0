"""Inkling 2 by hand: the vectors that queries read out of residual blocks, the runs of a loop and their
messages. Small models whose every number can be written down; sizes below are those of `SMALL`."""

from __future__ import annotations

from typing import Any

import pytest

from flopcalc import FlopCounter, InvalidConfig, Lora, Training, describe
from flopcalc.verify import verify

SMALL: dict[str, Any] = {
    "model_type": "inkling2_text",
    "vocab_size": 50,
    "unpadded_vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"],
    "n_layers_per_attn_res_block": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "swa_num_attention_heads": 2,
    "swa_num_key_value_heads": 1,
    "swa_head_dim": 4,
    "sliding_window_size": 5,
    "d_rel": 3,
    "rel_extent": 7,
    "conv_kernel_size": 4,
    "moe_intermediate_size": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
}
LOOP: dict[str, Any] = SMALL | {
    "model_type": "inkling2_loop_text",
    "num_hidden_layers": 6,
    "layer_types": ["hybrid_sliding", "hybrid"] * 3,
    "loop_layer_index_start": 2,
    "loop_layer_index_end": 4,
    "loop_num_passes": 3,
    "loop_gate_rank": 5,
}


def forward(config: dict[str, Any], tokens: int, prefix: str = "") -> dict[str, int]:
    """FLOPs by kind of the parts under a name, every pair by itself."""
    rows = FlopCounter(config, "exact", "forward").breakdown([tokens]).rows
    kinds: dict[str, int] = {}
    for path, kind, flops in rows:
        if path.startswith(prefix):
            kinds[kind] = kinds.get(kind, 0) + flops
    return kinds


def test_queries_score_and_sum_the_vectors_of_each_token() -> None:
    """modeling_inkling2.py: block states grow behind layers 0 and 2. Attention reads: none in layer 0, then one
    block and the open one (2), again 2, then 3; MLPs read 2, 2, 3, 3, the head 3. Full layers ask thrice."""
    attention, mlps, head = 3 * 2 + 1 * 2 + 3 * 3, 2 + 2 + 3 + 3, 3
    one_product = 2 * 16 * (attention + mlps + head)
    kinds = forward(SMALL, 10)
    assert kinds["stream_mix"] == 10 * one_product == 9600
    assert kinds["stream_map"] == 10 * one_product  # the queries, once for each vector that they score


def test_the_queries_count_as_often_as_they_are_used_under_standard_too() -> None:
    breakdown = FlopCounter(SMALL, phase="forward").breakdown([10])
    assert breakdown.by_module()["model.layers.3.attention_input"] == 10 * 3 * (2 * 3 * 16)
    assert "stream_mix" not in {kind for _, kind, flops in breakdown.rows if flops}


def test_a_full_layer_convolves_by_weights_of_each_token() -> None:
    """Layer 3: query, gate and output 16 x 32, key and value 16 x 16, their taps 16 x (2 heads * 4), position
    states 16 x (4 heads * 3), sinks 16 x 4, and for each of 4 heads a bank of 3 x 7."""
    matrices = 3 * 16 * 32 + 2 * 16 * 16 + 2 * 16 * 8 + 16 * 12 + 16 * 4 + 4 * 3 * 7
    kinds = forward(SMALL, 10, "model.layers.3.self_attn.")
    assert kinds["linear"] == 10 * 2 * matrices == 52880
    assert kinds["attention"] == 2 * 4 * (8 + 8) * 55


def test_a_sliding_layer_reads_its_window() -> None:
    """1 + 2 + 3 + 4 keys, then 5 for each of 6 queries."""
    assert forward(SMALL, 10, "model.layers.2.self_attn.")["attention"] == 2 * 2 * (4 + 4) * 40


def test_later_runs_of_the_loop_hear_the_run_before() -> None:
    """Two later runs, each: for both layers 4 queries over the one vector that the loop's block is, a
    product of scores and one of sums; and in each layer 4 gates of 32 x 5 and twice 5 x 16."""
    kinds = forward(LOOP, 10, "model.layers.loop_1.message_input")
    assert kinds == {"stream_map": 10 * 2 * (2 * 4) * 16, "stream_mix": 10 * 2 * (2 * 4) * 16}
    gates = sum(forward(LOOP, 10, f"model.layers.loop_1.layers.2.{name}_message_gate")["linear"] for name in "qkv")
    assert gates == 10 * 2 * 3 * (32 * 5 + 2 * 5 * 16)
    assert forward(LOOP, 10, "model.layers.2.q_message_gate") == {}


def test_a_run_of_the_loop_costs_its_layers_and_its_messages() -> None:
    def total(passes: int) -> int:
        return FlopCounter(LOOP | {"loop_num_passes": passes}, "exact", "forward")([10])

    layers = sum(sum(forward(LOOP, 10, f"model.layers.{i}.").values()) for i in (2, 3))
    messages = 2 * (2 * 8 * 16) + 2 * 2 * 4 * (32 * 5 + 2 * 5 * 16)
    assert total(3) - total(2) == total(2) - total(1) == layers + 10 * messages


def test_parameters_of_a_loop_count_once() -> None:
    assert describe(LOOP).num_params() == describe(LOOP | {"loop_num_passes": 1}).num_params()


def test_adapters_of_gates_run_in_the_later_runs_alone() -> None:
    """Rank 2 beside a down_proj of 32 x 5: in two layers, twice, three passes of 2 FLOPs, but for the very first
    to run, below which nothing learns: its A takes no input gradient."""
    lora = Training(lora=Lora(r=2, target_modules=("q_message_gate.down_proj",)))
    counter = FlopCounter(LOOP, "exact", training=lora)
    assert counter.num_adapter_params() == 2 * 2 * (32 + 5)
    assert counter.by_kind([10])["adapter"] == 10 * 2 * 2 * (2 * 2 * 3 * (32 + 5) - 32)


@pytest.mark.parametrize("model_type", ["inkling2_text", "inkling2_loop_text"])
def test_the_default_table_is_that_of_the_real_model(model_type: str) -> None:
    result = verify({"model_type": model_type}, lengths=())
    assert result.parameters_equal


@pytest.mark.parametrize(
    "changes",
    [
        {"loop_num_passes": 1},
        {"loop_num_passes": 4, "n_layers_per_attn_res_block": 1, "loop_layer_index_end": 5},
        {"loop_layer_index_end": 6},
        {"loop_config": {"core_start": 4, "core_end": 6, "num_passes": 2, "gate_rank": 3}},
        {"layer_types": ["hybrid"] * 3 + ["hybrid_sliding"] * 3, "d_rel": 2, "rel_extent": 3, "conv_kernel_size": 2},
        {"n_layers_per_attn_res_block": 3, "loop_layer_index_start": 3, "loop_layer_index_end": 6},
    ],
)
def test_loops_equal_the_real_model(changes: dict[str, Any]) -> None:
    assert verify(LOOP | changes, lengths=(9, 20)).equal


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"loop_layer_index_end": 8}, "loop_layer_index_end: found 8"),
        ({"loop_layer_index_end": 2}, "loop_layer_index_end: found 2"),
        ({"loop_layer_index_start": 3}, "loop_layer_index_start: found 3, expected a multiple"),
        ({"loop_num_passes": 0}, "loop_num_passes"),
        ({"layer_types": ["hybrid", "full"] * 3}, "'full'"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok: found 9"),
    ],
)
def test_loops_that_cannot_be_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        describe(LOOP | changes)
