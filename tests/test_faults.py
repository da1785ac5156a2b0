"""How the counters of the field went wrong, kind by kind (K1-K9), as properties of ours, on models
whose numbers do not hide the fault: head_dim apart from hidden/heads, k * expert width apart from
the dense width, two shared experts, odd layer counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopcalc import CONVENTIONS, FlopCounter, InvalidConfig, UnsupportedModel, describe, estimate_flops, is_supported
from flopcalc.config import read_config

EVERY_CONVENTION = list(CONVENTIONS)
MOONLIGHT = "moonshotai/Moonlight-16B-A3B"
SEED_OSS = "ByteDance-Seed/Seed-OSS-36B-Instruct"
NEMO_12B = "mistralai/Mistral-Nemo-Instruct-2407"
GLM_AIR = "zai-org/GLM-4.5-Air"


def fields(name: str) -> dict[str, Any]:
    return read_config(name)[1]


@pytest.mark.parametrize("name", [SEED_OSS, NEMO_12B, GLM_AIR, "Qwen/Qwen3-0.6B"])
@pytest.mark.parametrize("convention", ["standard", "torchtitan", "exact", "matmul-dense"])
def test_k1_head_dim_changes_linear_and_core_work(name: str, convention: str) -> None:
    config = fields(name)
    assert config["head_dim"] * config["num_attention_heads"] != config["hidden_size"]
    wider = {**config, "head_dim": 2 * config["head_dim"]}
    before, after = (FlopCounter(c, convention).breakdown([512]).by_kind() for c in (config, wider))
    assert after["attention"] == 2 * before["attention"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    grown = 2 * config["hidden_size"] * (heads + kv_heads) * config["head_dim"] * config["num_hidden_layers"]
    assert after["linear"] - before["linear"] == 6 * grown * 512


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"model_type": "mistral", "sliding_window": 64}, 64),
        ({"model_type": "gpt_oss", "num_hidden_layers": 5, "layer_types": ["sliding_attention"] * 5}, 128),
        ({"model_type": "gemma3_text", "num_hidden_layers": 3, "layer_types": ["sliding_attention"] * 3}, 1024),
        ({"model_type": "mamba2", "num_hidden_layers": 3}, 1),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else str(value),
)
@pytest.mark.parametrize("convention", ["standard", "torchtitan", "exact", "matmul-dense"])
def test_k2_windows_and_recurrences_are_affine_in_length(config: dict[str, Any], window: int, convention: str) -> None:
    counter = FlopCounter(config, convention)
    n = 8 * window
    assert counter([3 * n]) - counter([2 * n]) == counter([2 * n]) - counter([n])
    assert counter([3 * n]) > counter([2 * n])


def test_k2_a_gpt_oss_layer_of_odd_count_keeps_its_own_window() -> None:
    one, two = ({"model_type": "gpt_oss", "num_hidden_layers": layers} for layers in (3, 4))
    core = [FlopCounter(c, "exact").breakdown([1000]).by_kind()["attention"] for c in (one, two)]
    window = sum(min(i, 128) for i in range(1, 1001))
    full = sum(range(1, 1001))
    per_pair = 6 * 64 * (64 + 64)
    assert core == [per_pair * (2 * window + full), per_pair * (2 * window + 2 * full)]


def test_k3_every_part_of_a_mixture_is_counted_once() -> None:
    c = fields(MOONLIGHT)
    hidden, width, top_k, shared = 2048, 1408, 6, 2
    assert (c["hidden_size"], c["moe_intermediate_size"], c["num_experts_per_tok"]) == (hidden, width, top_k)
    assert (c["n_shared_experts"], c["first_k_dense_replace"], c["intermediate_size"]) == (shared, 1, 11264)
    mla = hidden * 16 * 192 + hidden * 576 + 512 * 16 * 256 + 16 * 128 * hidden
    moe = hidden * 64 + (top_k + shared) * 3 * hidden * width
    assert describe(MOONLIGHT).num_matmul_params() == 27 * mla + 26 * moe + 3 * hidden * 11264 + 163840 * hidden


def test_k3_glm_air_dense_layer_and_shared_expert() -> None:
    hidden, width = 4096, 1408
    attention = hidden * 96 * 128 * 2 + 2 * hidden * 8 * 128
    moe = hidden * 128 + (8 + 1) * 3 * hidden * width
    assert describe(GLM_AIR).num_matmul_params() == 46 * attention + 45 * moe + 3 * hidden * 10944 + 151552 * hidden


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"model_type": "qwen3_moe", "num_experts_per_tok": None}, "num_experts_per_tok"),
        ({"model_type": "mixtral", "num_experts_per_tok": "two"}, "num_experts_per_tok"),
        ({"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 8}, "num_experts_per_tok"),
        ({"model_type": "llama", "hidden_size": None}, "hidden_size"),
        ({"model_type": "llama", "hidden_size": -4096}, "hidden_size"),
        ({"model_type": "llama", "num_hidden_layers": 3.5}, "num_hidden_layers"),
        ({"model_type": "gpt_oss", "layer_types": ["full_attention"]}, "layer_types"),
        ({"model_type": "gpt_oss", "num_hidden_layers": 1, "layer_types": ["dilated_attention"]}, "layer_types"),
        ({"model_type": "deepseek_v3", "kv_lora_rank": None}, "kv_lora_rank"),
    ],
    ids=str,
)
def test_k4_a_field_that_does_not_resolve_is_an_error_naming_it(config: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidConfig, match=f"(?s){config['model_type']}.*{field}.*found"):
        describe(config)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-0.6B", "google/gemma-2-2b-it", "HuggingFaceTB/SmolLM3-3B"])
@pytest.mark.parametrize("convention", ["standard", "torchtitan", "torchtitan_0_3", "exact", "matmul-dense"])
def test_k5_the_embedding_look_up_is_no_matmul(name: str, convention: str) -> None:
    config = fields(name)
    tied, untied = ({**config, "tie_word_embeddings": tie} for tie in (True, False))
    assert describe(untied).num_params() - describe(tied).num_params() == config["vocab_size"] * config["hidden_size"]
    assert estimate_flops(tied, [777], convention=convention) == estimate_flops(untied, [777], convention=convention)


@given(st.lists(st.integers(1, 5000), min_size=2, max_size=20))
def test_k6_splitting_a_document_lowers_the_core_never_the_linear_part(lengths: list[int]) -> None:
    for name in ("openai/gpt-oss-20b", "Qwen/Qwen3-4B"):
        counter = FlopCounter(name)
        split, whole = (counter.breakdown(batch).by_kind() for batch in (lengths, [sum(lengths)]))
        assert split.pop("attention") < whole.pop("attention")
        assert split == whole


@pytest.mark.parametrize("unknown", ["gpt_os", "qwen33", "not_a_model", "Llama"])
def test_k7_an_unknown_type_is_an_error_never_a_number(unknown: str) -> None:
    assert not is_supported(unknown)
    with pytest.raises(UnsupportedModel, match=unknown):
        estimate_flops({"model_type": unknown, "hidden_size": 64}, [10])


def test_k7_the_error_names_the_nearest_types() -> None:
    with pytest.raises(UnsupportedModel, match="gpt_oss"):
        describe({"model_type": "gpt_os"})


@pytest.mark.parametrize("name", [MOONLIGHT, SEED_OSS, "openai/gpt-oss-20b", "Qwen/Qwen3.5-9B"])
@pytest.mark.parametrize("convention", EVERY_CONVENTION)
def test_k9_every_part_trains_three_passes_unless_a_rule_says_otherwise(name: str, convention: str) -> None:
    train = FlopCounter(name, convention).breakdown([4096, 17]).by_kind()
    forward = FlopCounter(name, convention, "forward").breakdown([4096, 17]).by_kind()
    assert train == {kind: 3 * flops for kind, flops in forward.items()}


def test_k9_only_an_indexer_runs_forward_alone() -> None:
    train, forward = (
        FlopCounter("zai-org/GLM-5.3", "exact", phase).breakdown([4096]).by_kind() for phase in ("train", "forward")
    )
    assert train["index_scores"] == forward["index_scores"] > 0
    assert train["attention"] == 3 * forward["attention"]
    assert train["linear"] < 3 * forward["linear"]
