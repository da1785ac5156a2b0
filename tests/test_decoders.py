"""What the operator counter cannot see of decoder families (windows, chunks, which layers they are
on) against hand-derived integers, and configs that contradict themselves."""

from __future__ import annotations

from typing import Any

import pytest

from flopcalc import FlopCounter, InvalidConfig, describe


def attention_flops(config: dict[str, Any], tokens: int, convention: str = "exact") -> int:
    counter = FlopCounter(config, convention, phase="forward")
    return counter.breakdown([tokens]).by_kind()["attention"]


TINY = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "head_dim": 16, "vocab_size": 256}
PAIR = 4 * 4 * 16  # FLOPs of one (query, key) pair: 4 heads, 16 wide, scores and values, 2 each
FULL, SLIDING, CHUNKED = 55, 27, 23
"""Causal pairs of 10 tokens: all 10*11/2; in a window of 3 1+2+3*8; in chunks of 4 10+10+3."""


@pytest.mark.parametrize(
    ("model_type", "fields", "pairs"),
    [
        ("mistral", {}, 4 * SLIDING),
        ("mistral", {"sliding_window": None}, 4 * FULL),
        ("mixtral", {}, 4 * SLIDING),
        ("phi3", {}, 4 * SLIDING),
        ("phimoe", {}, 4 * SLIDING),
        ("ministral3", {}, 4 * SLIDING),
        ("starcoder2", {"num_key_value_heads": 2}, 4 * SLIDING),
        ("ministral", {}, 4 * SLIDING),
        ("ministral", {"layer_types": ["full_attention"] * 3 + ["sliding_attention"]}, 3 * FULL + SLIDING),
        ("afmoe", {}, 3 * SLIDING + FULL),
        ("afmoe", {"global_attn_every_n_layers": 2}, 2 * SLIDING + 2 * FULL),
        ("olmo3", {}, 3 * SLIDING + FULL),
        ("exaone4", {"num_key_value_heads": 2}, 3 * SLIDING + FULL),
        ("exaone_moe", {"num_key_value_heads": 2}, 3 * SLIDING + FULL),
        ("cohere2", {}, 3 * SLIDING + FULL),
        ("cohere2", {"sliding_window_pattern": 2}, 2 * SLIDING + 2 * FULL),
        ("cohere2_moe", {"first_k_dense_replace": 2}, 2 * FULL + 2 * SLIDING),
        ("cwm", {"num_key_value_heads": 2}, FULL + 3 * SLIDING),
        ("granite_swa", {}, FULL + 3 * SLIDING),
        ("granitemoe_swa", {}, FULL + 3 * SLIDING),
        ("vaultgemma", {}, 2 * SLIDING + 2 * FULL),
        ("dots1", {"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2}, 4 * FULL),
        (
            "dots1",
            {"max_window_layers": 1, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2},
            FULL + 3 * SLIDING,
        ),
        ("mellum", {}, 4 * FULL),
        ("smollm3", {}, 4 * FULL),
        ("smollm3", {"use_sliding_window": True}, 3 * FULL + SLIDING),
        (
            "laguna",
            {"num_key_value_heads": 2, "layer_types": ["sliding_attention", "full_attention"] * 2},
            2 * SLIDING + 2 * FULL,
        ),
        ("olmo2", {}, 4 * FULL),
        ("olmoe", {}, 4 * FULL),
        ("llama4_text", {"attention_chunk_size": 4, "num_key_value_heads": 2}, 3 * CHUNKED + FULL),
        ("llama4_text", {"attention_chunk_size": None}, 4 * FULL),
        ("llama4_text", {"attention_chunk_size": 4, "no_rope_layers": [0, 1, 1, 0]}, 2 * CHUNKED + 2 * FULL),
    ],
)
def test_each_layer_attends_to_what_its_type_says(model_type: str, fields: dict[str, Any], pairs: int) -> None:
    config = {"model_type": model_type, **TINY, "num_hidden_layers": 4, "sliding_window": 3, **fields}
    assert attention_flops(config, 10) == pairs * PAIR


def test_a_chunk_of_one_document_ends_where_the_document_ends() -> None:
    config = {"model_type": "llama4_text", **TINY, "num_hidden_layers": 1, "attention_chunk_size": 256}
    assert attention_flops(config, 2048) == 263_168 * PAIR  # 8 chunks of 256 * 257 / 2
    assert attention_flops(config, 256) == 32_896 * PAIR
    counter = FlopCounter(config, "exact")
    assert counter([300, 300]) == 2 * counter([300])


def test_query_heads_may_differ_from_layer_to_layer() -> None:
    config = {
        "model_type": "laguna",
        **TINY,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "num_attention_heads_per_layer": [4, 6],
    }
    assert attention_flops(config, 10) == FULL * (4 + 6) * 4 * 16
    shapes = dict(describe(config).parameters())
    assert shapes["model.layers.0.self_attn.o_proj.weight"] == (64, 64)
    assert shapes["model.layers.1.self_attn.q_proj.weight"] == (96, 64)
    assert shapes["model.layers.1.self_attn.g_proj.weight"] == (6, 64)


def test_an_older_spelling_wins_over_the_newer_one_as_in_transformers() -> None:
    config = {"model_type": "mixtral", "num_local_experts": 8, "num_experts": 4, "num_hidden_layers": 1}
    shapes = dict(describe(config).parameters())
    assert shapes["model.layers.0.mlp.experts.down_proj"] == (4, 4096, 14336)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "num_experts_per_tok: found 9, expected at most .* 8"),
        ({"model_type": "mixtral", "num_experts_per_tok": None}, "num_experts_per_tok: found None"),
        ({"model_type": "afmoe", "num_experts": None}, "num_experts: found None"),
        ({"model_type": "ernie4_5_moe", "moe_k": 65}, "moe_k: found 65"),
        ({"model_type": "dots1"}, "n_routed_experts: found None"),
        ({"model_type": "hunyuan_v1_moe", "head_dim": 8, "moe_topk": [1, 1]}, "moe_topk: found 2 entries"),
        ({"model_type": "laguna", "num_attention_heads_per_layer": [48]}, "num_attention_heads_per_layer: found 1"),
        ({"model_type": "laguna", "mlp_layer_types": ["sparse"]}, "mlp_layer_types: found 1 entries"),
        ({"model_type": "olmo3", "layer_types": ["full_attention"]}, "layer_types: found 1 entries"),
        ({"model_type": "olmo3", "num_hidden_layers": 1, "layer_types": ["mamba3"]}, "layer_types: found 'mamba3'"),
        ({"model_type": "olmo3", "sliding_window": None}, "sliding_window: found None"),
        ({"model_type": "exaone4", "sliding_window": None}, "sliding_window_pattern: found 0"),
        ({"model_type": "exaone4", "sliding_window_pattern": "LLLG"}, "sliding_window_pattern: found 'LLLG'"),
        (
            {"model_type": "llama4_text", "attention_chunk_size": None, "layer_types": ["chunked_attention"] * 48},
            "attention_chunk_size: found None",
        ),
        ({"model_type": "nemotron"}, "num_key_value_heads: found None"),
        ({"model_type": "ministral"}, "head_dim: found None"),
        ({"model_type": "helium", "head_dim": 64}, "head_dim: found 64, expected hidden_size"),
        ({"model_type": "stablelm", "num_attention_heads": 7}, "hidden_size: found 2560, expected a multiple"),
    ],
)
def test_a_config_that_its_model_cannot_have_is_an_error_that_names_the_field(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        describe(fields)
