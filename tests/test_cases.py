"""Faults that real users met: counts, with their right integers. Each test names its case."""

from __future__ import annotations

from typing import Any

import pytest

from flopcalc import FlopCounter, describe, estimate_flops
from flopcalc.spans import Bidirectional, Chunk, Full, Window
from flopcalc.tree import Attention, Module

LLAMA2_7B = {"model_type": "llama"}  # the class defaults are llama2-7b
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
}
QWEN3_4B = {
    "model_type": "qwen3",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
TL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 256,
}


def linear(config: Any, lengths: list[int]) -> int:
    return FlopCounter(config, "exact").breakdown(lengths).total() - core(config, lengths, "exact")


def core(config: Any, lengths: list[int], convention: str) -> int:
    return FlopCounter(config, convention).breakdown(lengths).by_kind()["attention"]


def test_a1_llama2_7b_weights_and_core() -> None:
    batch = [256] * 4
    assert describe(LLAMA2_7B).num_matmul_params() == 6_607_077_376
    assert linear(LLAMA2_7B, batch) == 40_593_883_398_144
    assert core(LLAMA2_7B, batch, "matmul-dense") == 412_316_860_416
    assert core(LLAMA2_7B, batch, "exact") == 206_963_736_576
    counter = FlopCounter(LLAMA2_7B, "exact")
    assert counter.flops_per_token(256) * 1024 == counter(batch)


def test_a2_mixtral_counts_its_active_experts() -> None:
    assert describe(MIXTRAL).num_matmul_params() == 12_748_587_008
    assert estimate_flops(MIXTRAL, [1024], convention="matmul-dense") == 79_976_586_018_816


def test_a3_gpt_oss_120b_windows() -> None:
    gpt_oss_120b = {"model_type": "gpt_oss"}  # the class defaults are gpt-oss-120b
    assert describe(gpt_oss_120b).num_matmul_params() == 5_131_100_160
    assert FlopCounter(gpt_oss_120b, "matmul-dense").flops_per_token(4096) == 34_523_725_824


def test_a4_qwen3_30b_a3b() -> None:
    config = "Qwen/Qwen3-30B-A3B"
    assert describe(config).num_matmul_params() == 3_041_656_832
    assert core(config, [8192], "matmul-dense") == 19_327_352_832 * 8192
    assert estimate_flops(config, [8192], convention="exact") == 228_678_017_482_752


def test_a5_head_dim_is_a_field_of_its_own() -> None:
    assert describe(QWEN3_4B).num_matmul_params() == 4_022_272_000
    assert core(QWEN3_4B, [4096], "matmul-dense") == 7_247_757_312 * 4096


@pytest.mark.parametrize(
    ("lengths", "exact", "dense"),
    [
        ([128], 12_681_216, 25_165_824),
        ([64, 64], 6_389_760, 12_582_912),
        ([8] * 16, 884_736, 1_572_864),
    ],
)
def test_a6_documents_split_the_core_never_the_linear_part(lengths: list[int], exact: int, dense: int) -> None:
    assert linear(TL, lengths) == 69_206_016
    assert core(TL, lengths, "exact") == exact
    assert core(TL, lengths, "matmul-dense") == dense


def test_a7_window_and_chunk_pairs() -> None:
    assert Full().pairs(2048, "exact") == 2_098_176
    assert Window(512).pairs(2048, "exact") == 917_760
    assert Chunk(256).pairs(2048, "exact") == 263_168


@pytest.mark.parametrize("convention", ["standard", "torchtitan", "matmul-dense", "exact"])
def test_a8_tied_and_untied_cost_the_same(convention: str) -> None:
    tied, untied = {**TL, "tie_word_embeddings": True}, {**TL, "tie_word_embeddings": False}
    assert estimate_flops(tied, [128], convention=convention) == estimate_flops(untied, [128], convention=convention)
    assert describe(untied).num_params() - describe(tied).num_params() == 256 * 64


@pytest.mark.parametrize("convention", ["standard", "exact"])
def test_a10_stray_mla_keys_prove_nothing(convention: str) -> None:
    stray = {**QWEN3_4B, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128}
    assert estimate_flops(stray, [4096], convention=convention) == estimate_flops(
        QWEN3_4B, [4096], convention=convention
    )


def test_a13_grouped_queries_cost_their_query_heads() -> None:
    tree = Module(core=Attention(heads=8, qk_dim=64, v_dim=64, span=Bidirectional()))  # 2 kv heads are no field of it
    assert FlopCounter(tree, "exact", "forward")([256]) == 134_217_728


@pytest.mark.parametrize("config", [LLAMA2_7B, QWEN3_4B, {"model_type": "gpt_oss"}])
def test_a15_quantization_changes_nothing(config: dict[str, Any]) -> None:
    quantized = {**config, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert estimate_flops(quantized, [300]) == estimate_flops(config, [300])


def test_a16_forward_is_a_third_of_training() -> None:
    chosen, rejected = [512, 300], [128, 640]
    train = estimate_flops(LLAMA2_7B, chosen + rejected)
    reference = estimate_flops(LLAMA2_7B, chosen + rejected, phase="forward")
    assert 3 * reference == train
    preference_step = train + reference
    assert preference_step == 4 * (
        estimate_flops(LLAMA2_7B, chosen, phase="forward") + estimate_flops(LLAMA2_7B, rejected, phase="forward")
    )


def test_d1_missing_head_dim_is_hidden_over_heads() -> None:
    config = {"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4}
    with_dim = {**config, "head_dim": 128}
    assert estimate_flops(config, [1000]) == estimate_flops(with_dim, [1000])
