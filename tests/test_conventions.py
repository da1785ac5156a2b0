"""The conventions of the field: what their counters printed, digit for digit, and their rules."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from conventions_doc import tables

from flopcalc import (
    CONVENTIONS,
    Convention,
    FlopCounter,
    InvalidConfig,
    InvalidOption,
    Lora,
    Training,
    describe,
    facts,
    supported_model_types,
)
from flopcalc.conventions.words import STEPS
from flopcalc.tree import Kind, walk

PUBLISHED = facts.folder("registry") / "published"
VERL = json.loads((PUBLISHED / "verl_expected.json").read_text(encoding="utf-8"))["cases"]
PRINTED = list(csv.DictReader((PUBLISHED / "counters.csv").open(encoding="utf-8", newline="")))

GLM_5 = {"model_type": "glm_moe_dsa"}  # an indexer in each of 78 layers: 64 heads of 256 + 256, top 2048
GPT_OSS = "openai/gpt-oss-20b"
DEEPSEEK_V3 = {"model_type": "deepseek_v3"}
DEEPSEEK_V4 = {"model_type": "deepseek_v4", "num_hidden_layers": 3, "compress_ratios": [0, 4, 128]}


def by_kind(config: Any, convention: str | Convention, lengths: list[int], phase: Any = "train") -> dict[str, int]:
    return FlopCounter(config, convention, phase).by_kind(lengths)


# --- printed numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", VERL, ids=lambda case: case["case"])
def test_all_totals_of_verls_own_test_come_out(case: dict[str, Any]) -> None:
    counter = FlopCounter(case["config"], "verl")
    images = case.get("images_seqlens", [None] * len(case["batch_seqlens"]))
    totals = [counter(batch, images=patches) for batch, patches in zip(case["batch_seqlens"], images, strict=True)]
    assert totals == case["expected_total_flops"]


def test_verls_table_is_whole() -> None:
    assert sum(len(case["expected_total_flops"]) for case in VERL) == 26
    assert sum("images_seqlens" in case for case in VERL) == 4


def in_the_form_of(flops: float, printed: str) -> str:
    digits = len(printed.partition("e")[0].partition(".")[2])
    mantissa, _, exponent = f"{flops:.{digits}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


@pytest.mark.parametrize(
    "row", PRINTED, ids=lambda row: f"{row['convention']}-{row['model']}-{row['mtp']}-{row['seq_len']}"
)
def test_a_counters_printed_number_comes_out_or_its_fault_says_why(row: dict[str, str]) -> None:
    config = json.loads(row["config"]) if row["config"].startswith("{") else row["config"]
    training, seq_len = Training(mtp=int(row["mtp"])), int(row["seq_len"])
    flops = FlopCounter(config, row["convention"], training=training)([seq_len])
    if row["unit"] == "total":
        assert flops == int(row["rule"])
    else:
        assert in_the_form_of(flops / seq_len, row["rule"]) == row["rule"]
    assert (row["printed"] == row["rule"]) == (not row["fault"])


@pytest.mark.parametrize(
    ("name", "seq_len", "printed"),
    [
        ("meta-llama/Llama-3.1-8B", 8192, "4.22e14"),
        ("Qwen/Qwen3-30B-A3B", 4096, "9.42e13"),
        ("Qwen/Qwen3-235B-A22B", 4096, "6.06e14"),
    ],
)
def test_megatron_bridges_functional_tests_say_the_same(name: str, seq_len: int, printed: str) -> None:
    assert in_the_form_of(FlopCounter(name, "megatron_bridge")([seq_len]), printed) == printed


@pytest.mark.parametrize(
    ("convention", "config", "seq_len", "per_token"),
    [
        ("torchtitan_0_3", GPT_OSS, 4096, 26_481_681_792),
        ("torchtitan", GPT_OSS, 4096, 24_141_260_160),
        ("torchtitan", "Qwen/Qwen3-8B", 8192, 59_905_947_648),
        ("torchtitan", "Qwen/Qwen3-30B-A3B", 8192, 37_578_559_488),
        ("torchtitan", "Qwen/Qwen3-0.6B", 4096, 6_394_871_808),
        ("torchtitan", "meta-llama/Llama-3.1-8B", 8192, 57_914_449_920),
        ("torchtitan", DEEPSEEK_V3, 4096, 281_158_232_064),
        ("megatron_lm", "meta-llama/Llama-3.1-8B", 8192, 51_470_401_536),
    ],
)
def test_verified_numbers_per_token(convention: str, config: Any, seq_len: int, per_token: int) -> None:
    assert FlopCounter(config, convention)([seq_len]) == per_token * seq_len


def test_deepseek_v4_flash_with_one_depth_is_what_torchtitan_says() -> None:
    counter = FlopCounter("deepseek-ai/DeepSeek-V4-Flash", "torchtitan", training=Training(mtp=1))
    assert counter([4096]) == 92_762_352_876 * 4096
    assert counter.tree.num_params() == 290_942_278_866


# --- the faults between a rule and a printed number, by hand --------------------------------------


def fault_of(convention: str, model: str) -> tuple[int, int]:
    """(printed, rule) of one of the table's totals."""
    [row] = [
        row
        for row in PRINTED
        if (row["convention"], row["model"], row["unit"]) == (convention, model, "total") and row["fault"]
    ]
    return int(row["printed"]), int(row["rule"])


@pytest.mark.parametrize(
    ("model", "h", "a", "g", "d", "f", "vocab", "layers", "n"),
    [
        ("Gemma-3-12B text", 3840, 16, 8, 256, 15360, 262208, 48, 8192),
        ("Mistral-7B-v0.1", 4096, 32, 8, 128, 14336, 32000, 32, 32768),
    ],
)
def test_automodels_fallback_has_no_gate_and_no_head_dim(
    model: str, h: int, a: int, g: int, d: int, f: int, vocab: int, layers: int, n: int
) -> None:
    printed = 6 * n * (layers * (2 * h * h + 2 * h * h * g // a + 2 * h * f) + h * vocab) + 6 * h * n * n * layers
    rule = 6 * n * (layers * (2 * h * d * (a + g) + 3 * h * f) + h * vocab) + 6 * a * d * n * n * layers
    assert fault_of("automodel", model) == (printed, rule)


def test_prime_rl_took_hidden_over_heads_as_the_cores_head_dim() -> None:
    printed, rule = fault_of("prime_rl_2026_08", "gpt-oss-20b")
    assert rule - printed == 12 * 24 * 64 * (64 - 2880 // 64) * 4096**2
    printed, rule = fault_of("prime_rl_2026_08", "Gemma-3-12B text")
    assert rule - printed == 12 * 48 * 16 * (256 - 3840 // 16) * 8192**2


def test_prime_rl_found_no_shared_experts_in_deepseek_v3() -> None:
    printed, rule = fault_of("prime_rl_2026_08", "DeepSeek-V3")
    core = 61 * 128 * (6 * (128 + 64 + 128) - 12 * (7168 // 128)) * 4096**2
    assert rule - printed == core + 6 * 58 * 3 * 7168 * 2048 * 4096


@pytest.mark.parametrize(("convention", "embeddings"), [("prime_rl_2026_08", 0), ("trl", 1)])
def test_linear_attention_was_counted_as_full_attention(convention: str, embeddings: int) -> None:
    h, a, g, d, n = 4096, 16, 4, 256, 8192
    mlp, head = 3 * h * 12288, (1 + embeddings) * h * 248320
    full = 2 * h * d * (a + g)
    delta_net = h * (2 * 16 * 128 + 2 * 32 * 128 + 2 * 32) + 32 * 128 * h
    printed = 6 * n * (32 * (full + mlp) + head) + 32 * 12 * a * d * n * n
    rule = 6 * n * (8 * full + 24 * delta_net + 32 * mlp + head) + 8 * 12 * a * d * n * n
    assert fault_of(convention, "Qwen3.5-9B text") == (printed, rule)


# --- single rules --------------------------------------------------------------------------------


def test_verl_halves_windows_too_in_the_types_whose_windows_it_knows() -> None:
    one_window = {"num_hidden_layers": 1, "layer_types": ["sliding_attention"], "sliding_window": 2}
    for model_type, heads, dim in (("gemma3_text", 8, 256), ("gpt_oss", 64, 64)):
        core = by_kind({"model_type": model_type, **one_window}, "verl", [8])["attention"]
        assert core == 6 * heads * dim * 8 * 2  # 12 * heads * dim for 8 * 2 / 2 pairs
    mistral = {"model_type": "mistral", "num_hidden_layers": 1, "sliding_window": 2}
    assert by_kind(mistral, "verl", [8])["attention"] == 6 * 32 * 128 * 8 * 8


def test_veomni_counts_gpt_oss_dense_in_full_layers_and_exact_in_windows() -> None:
    layer = {"model_type": "gpt_oss", "num_hidden_layers": 1}
    full = by_kind({**layer, "layer_types": ["full_attention"]}, "veomni", [128])["attention"]
    window = by_kind({**layer, "layer_types": ["sliding_attention"]}, "veomni", [128])["attention"]
    assert (full, window) == (12 * 64 * 64 * 128 * 128, 12 * 64 * 64 * 8256)


def test_veomni_takes_the_querys_width_for_both_products_of_latent_attention() -> None:
    assert by_kind(DEEPSEEK_V3, "veomni", [4096])["attention"] == 61 * 12 * 128 * 192 * 4096**2


def test_megatron_lm_pads_the_vocabulary_counts_latent_norms_and_no_router() -> None:
    config = {**DEEPSEEK_V3, "num_hidden_layers": 1, "first_k_dense_replace": 0, "vocab_size": 1000}
    kinds = by_kind(config, "megatron_lm", [1])
    assert kinds["head"] == 6 * 7168 * 1024
    assert kinds["norm"] == 6 * (1536 + 512)
    assert "router" not in kinds


def test_depths_of_multi_token_prediction() -> None:
    """One depth of DeepSeek-V3: its layer; a norm of 3h and 2h*h into it; once more the head."""
    h, fe, vocab, n = 7168, 2048, 129280, 4096
    mla = h * 1536 + 1536 * 128 * 192 + h * 576 + 512 * 128 * 256 + 128 * 128 * h
    layer = mla + (8 + 1) * 3 * h * fe
    core, router, latents, layer_norms = 3 * 128 * 320 * n * n, h * 256, 1536 + 512, 2 * h
    weights = {
        "megatron_lm": layer + latents + 3 * h + 2 * h * h + h * vocab,
        "automodel": layer + 2 * h * h + h * vocab,
        "maxtext": layer + router,
    }
    dense = layer + router + latents + layer_norms + 3 * h + 2 * h * h + h * vocab
    expected = {name: 6 * n * params + core for name, params in weights.items()}
    expected |= dict.fromkeys(("standard", "prime_rl", "torchtitan"), 6 * n * dense + 2 * core)
    for name in CONVENTIONS:
        depth = FlopCounter(DEEPSEEK_V3, name, training=Training(mtp=1))([n]) - FlopCounter(DEEPSEEK_V3, name)([n])
        if name in expected:
            assert depth == expected[name], name
        elif name not in ("megatron_bridge", "matmul-dense", "exact"):
            assert depth == 0, name


@pytest.mark.parametrize(("convention", "forward"), [("megatron_lm", 102_875_136), ("automodel", 81_084_416)])
def test_a_mamba2_layer_of_nemotron_3_nano(convention: str, forward: int) -> None:
    """Megatron takes the inner width as twice the hidden size: 5376 instead of 64 * 64."""
    nano = {"model_type": "nemotron_h", "hidden_size": 2688, "layers_block_type": ["linear_attention"]}
    nano |= {"mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8}
    modules = FlopCounter(nano, convention, "forward").breakdown([1]).by_module()
    assert modules["model.layers.0.mixer"] == forward


@pytest.mark.parametrize(
    ("convention", "factor"), [("megatron_lm", 24), ("automodel", 24), ("maxtext", 24), ("verl", 15)]
)
@pytest.mark.parametrize(("key_dim", "value_dim"), [(64, 128), (128, 128)])
def test_the_delta_rules_state_is_squared_by_megatron(
    convention: str, factor: int, key_dim: int, value_dim: int
) -> None:
    config = {"model_type": "qwen3_next", "num_hidden_layers": 1, "layer_types": ["linear_attention"]}
    config |= {"linear_key_head_dim": key_dim, "linear_value_head_dim": value_dim}
    width = value_dim if convention in ("megatron_lm", "automodel") else key_dim
    assert by_kind(config, convention, [10])["delta_rule"] == factor * 32 * width * value_dim * 10


def test_megatron_bridge_counts_windows_exactly_in_documents_longer_than_them() -> None:
    window = {"model_type": "mistral", "num_hidden_layers": 1, "sliding_window": 16}
    core = [by_kind(window, "megatron_bridge", [n])["attention"] for n in (16, 17, 100)]
    pairs = [16 * 16 / 2, 16 * 17 - 16 * 15 / 2, 16 * 100 - 16 * 15 / 2]
    assert core == [12 * 32 * 128 * count for count in pairs]


def test_megatron_bridge_counts_sparse_attention_absorbed_and_its_indexer_forward() -> None:
    layers, heads, n = 78, 64, 4096
    kinds = by_kind(GLM_5, "megatron_bridge", [n])
    picked = 2048 * n - 2048 * 2047 // 2
    assert kinds["attention"] == layers * 6 * heads * (2 * 512 + 64) * picked
    assert kinds["index_scores"] == layers * 2 * 32 * (128 + 1) * n * (n + 1) // 2
    assert "index_scores" not in by_kind(GLM_5, "megatron_lm", [n])


def test_automodel_counts_all_top_k_keys_for_every_token() -> None:
    """The three numbers per token as its own counter gives them for GLM-5: 3.14e10 for any length,
    and 1.256e11 of indexer scores at 65536."""
    for n in (512, 8192):
        assert by_kind(GLM_5, "automodel", [n])["attention"] == n * 78 * 6 * 64 * (256 + 256) * 2048
    assert by_kind(GLM_5, "automodel", [65536])["index_scores"] == 65536 * 78 * 6 * 32 * 128 * 65536
    owners = by_kind("zai-org/GLM-5.2", "standard", [65536])["index_scores"]
    assert owners == 65536 * 21 * 2 * 32 * 128 * 65536


def test_maxtext_counts_limits_as_areas_where_it_knows_them() -> None:
    n, w = 4096, 128
    window = {"num_hidden_layers": 1, "layer_types": ["sliding_attention"], "sliding_window": w}
    gpt_oss = by_kind({"model_type": "gpt_oss", **window}, "maxtext", [n])["attention"]
    assert gpt_oss == 12 * 64 * 64 * (n * w - w * w // 2)
    mistral = by_kind({"model_type": "mistral", "num_hidden_layers": 1, "sliding_window": w}, "maxtext", [n])
    assert mistral["attention"] == 6 * 32 * 128 * n * n
    sparse = by_kind({**GLM_5, "num_hidden_layers": 1}, "maxtext", [n])
    assert sparse["attention"] == 6 * 64 * 512 * (n * 2048 - 2048**2 // 2)
    assert sparse["index_scores"] == 3 * 32 * (128 + 1) * n * n
    chunked = {"model_type": "llama4_text", "num_hidden_layers": 1, "attention_chunk_size": 1000}
    assert by_kind(chunked, "maxtext", [n])["attention"] == 6 * 40 * 128 * (4 * 1000**2 + 96**2)


@pytest.mark.parametrize("n", [64, 4096])
def test_maxtext_and_bridge_count_deepseek_v4s_compressed_keys_as_areas(n: int) -> None:
    heads, dim, top_k = 64, 512, 512
    picked = min(n // 4, top_k)
    entries = (n * picked - 2 * picked**2) + n * (n // 128) / 2  # rate 4 up to top_k, rate 128
    window = 3 * (n * min(n, 128) - min(n, 128) ** 2 / 2)
    assert by_kind(DEEPSEEK_V4, "maxtext", [n])["attention"] == 12 * heads * dim * (window + entries)
    assert by_kind(DEEPSEEK_V4, "megatron_bridge", [n])["attention"] == 12 * heads * dim * (3 * n * 128 + entries)


def test_maxtext_counts_no_output_gate() -> None:
    full = {"model_type": "qwen3_next", "num_hidden_layers": 1, "layer_types": ["full_attention"]}
    gate = by_kind(full, "matmul-dense", [1])["linear"] - by_kind(full, "maxtext", [1])["linear"]
    assert gate == 6 * 2048 * 4096


def test_levanter_adds_three_flops_per_pair_and_head() -> None:
    llama = {"model_type": "llama", "num_hidden_layers": 2}
    more = by_kind(llama, "levanter", [100])["attention"] - by_kind(llama, "matmul-dense", [100])["attention"]
    assert more == 2 * 3 * 3 * 32 * 100 * 100


def test_olmo_core_counts_norms_of_heads_and_of_the_head_alone() -> None:
    olmo2 = {"model_type": "olmo2", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    assert by_kind(olmo2, "olmo_core", [1])["norm"] == 6 * (2 * (64 + 64) + 64)


def test_olmo_core_prints_delta_rule_layers_forward_only() -> None:
    """One layer of Qwen3.5-9B: 1.390e8 printed, 4.170e8 trained."""
    layer, conv = "model.layers.0.linear_attn", 4 * (2 * 16 + 32) * 128
    weights = 4096 * (2 * 16 * 128 + 2 * 32 * 128 + 2 * 32) + 32 * 128 * 4096 + conv
    printed = 2 * weights + 8 * 32 * 128 * 128
    config = {"model_type": "qwen3_5_text"}
    for convention, flops in ((CONVENTIONS["olmo_core"], 3 * printed), (CONVENTIONS["olmo_core"].as_printed, printed)):
        assert FlopCounter(config, convention).breakdown([1]).by_module()[layer] == flops
    assert (f"{printed:.3e}", f"{3 * printed:.3e}") == ("1.390e+08", "4.170e+08")


@pytest.mark.parametrize("tied", [True, False])
def test_trl_counts_embedding_and_head_once_each_hf_trainer_an_untied_head_alone(tied: bool) -> None:
    llama = {"model_type": "llama", "hidden_size": 64, "vocab_size": 100, "tie_word_embeddings": tied}
    matrix = 6 * 64 * 100
    trl, trainer = by_kind(llama, "trl", [1]), by_kind(llama, "hf_trainer", [1])
    assert (trl.get("head", 0), trl["embedding"]) == (0 if tied else matrix, matrix)
    assert (trainer.get("head", 0), trainer.get("embedding", 0)) == (0 if tied else matrix, 0)


def test_hf_trainer_multiplies_every_expert_and_the_towers_by_the_texts_tokens() -> None:
    name = "Qwen/Qwen3-VL-30B-A3B-Instruct"
    tree = describe(name)
    tables = sum(
        visit.times * visit.leaf.num_params()
        for visit in walk(tree)
        if any(tensor.kind in ("embedding", "lookup") for tensor in visit.tensors)
    )
    counter = FlopCounter(tree, "hf_trainer")
    assert counter([10]) == counter([10], images=[64]) == 6 * 10 * (tree.num_params() - tables)


def test_counters_without_towers_ignore_images_and_others_count_them() -> None:
    counters = {name: FlopCounter("Qwen/Qwen3-VL-4B-Instruct", name) for name in CONVENTIONS}
    without = {"torchtitan", "torchtitan_0_3", "prime_rl_2026_08", "megatron_lm", "automodel", "nemo_rl", "slime"}
    without |= {"maxtext", "levanter", "olmo_core", "trl", "hf_trainer", "palm"}
    assert {name for name, count in counters.items() if count([100], images=[64]) == count([100])} == without


def test_veomni_and_verl_run_mergers_on_patches_bridge_on_merged_tokens_without_a_patch_embedding() -> None:
    h, f, layers, out, deepstack, patches = 1024, 4096, 24, 2560, 3, 256  # the tower of Qwen3-VL-4B
    joined, embedding = 4 * h, 3 * 2 * 16 * 16 * h
    blocks, mergers = layers * (4 * h * h + 2 * h * f), (1 + deepstack) * (joined + out) * joined
    core = 12 * h * layers * patches**2
    expected = {
        "verl": 6 * patches * (embedding + blocks + mergers) + core,
        "veomni": 6 * patches * (embedding + blocks + mergers) + core,
        "megatron_bridge": 6 * patches * blocks + 6 * patches // 4 * mergers + core,
    }
    assert expected == {name: FlopCounter("Qwen/Qwen3-VL-4B-Instruct", name)([], images=[patches]) for name in expected}


def test_lora_is_full_training_to_counters_that_do_not_know_it() -> None:
    training = Training(lora=Lora(r=8, target_modules=("q_proj",)))
    config = {"model_type": "llama", "num_hidden_layers": 2}
    cheaper = {
        name
        for name in CONVENTIONS
        if FlopCounter(config, name, training=training)([100]) < FlopCounter(config, name)([100])
    }
    knowing = {"standard", "prime_rl", "prime_rl_2026_08", "veomni", "megatron_bridge", "matmul-dense", "exact"}
    assert cheaper == knowing
    printed = CONVENTIONS["megatron_bridge"].as_printed
    assert FlopCounter(config, printed, training=training)([100]) == FlopCounter(config, printed)([100])


def test_prime_rl_is_standard_by_another_name() -> None:
    standard, prime_rl = CONVENTIONS["standard"], CONVENTIONS["prime_rl"]
    assert prime_rl.changed(name=standard.name, summary=standard.summary, source=standard.source) == standard


# --- conventions as values -----------------------------------------------------------------------


def test_every_preset_says_what_it_is_and_where_it_comes_from() -> None:
    own = {"standard", "matmul-dense", "exact"}
    for name, convention in CONVENTIONS.items():
        assert convention.name == name and convention.summary
        assert bool(convention.source) == (name not in own)


def test_every_preset_is_valid() -> None:
    for convention in CONVENTIONS.values():
        assert convention.changed() == convention


def test_every_knob_and_kind_has_a_step_with_words() -> None:
    about = {"name", "summary", "source", "overrides", "printed"}
    assert {step.knob for step in STEPS} == set(Convention.model_fields) - about
    kinds = [kind for step in STEPS for kind in step.kinds]
    assert sorted(kinds) == sorted(Kind.__args__)  # type: ignore[attr-defined]


def test_a_knob_that_does_not_exist_or_fit_is_named() -> None:
    with pytest.raises(InvalidOption, match=r"Convention\.pairz"):
        CONVENTIONS["verl"].changed(pairz="half")
    with pytest.raises(InvalidOption, match=r"Convention\.window: found 'open'"):
        CONVENTIONS["verl"].changed(overrides={"llama": {"window": "open"}})


def test_the_vocabularys_embedding_is_one_of_its_kind() -> None:
    """Counters that price it as a matmul price no other table so."""
    defaults = [{"model_type": model_type} for model_type in supported_model_types()]
    for config in [*facts.bundled_configs(), *defaults]:
        try:
            tree = describe(config)
        except InvalidConfig:  # a class whose defaults are no model
            continue
        tables = [visit.path for visit in walk(tree) for tensor in visit.tensors if tensor.kind == "embedding"]
        assert len(tables) == 1, (config, tables)


def test_the_document_says_what_the_code_does() -> None:
    """Where this fails, `python tests/conventions_doc.py` prints the lines as they should be."""
    document = Path(__file__).parent.parent / "docs" / "conventions.md"
    lines = set(document.read_text(encoding="utf-8").splitlines())
    assert [line for line in tables() if line not in lines] == []


def test_torchtitans_transformers_backend_is_a_few_knobs_away() -> None:
    titan = CONVENTIONS["torchtitan_0_3"]
    backend = titan.changed(name="titan-hf", pairs="half", experts="all", weights=titan.weights | {"embedding"})
    assert in_the_form_of(FlopCounter("Qwen/Qwen3-8B", backend).flops_per_token(8192), "5.6392e10") == "5.6392e10"
    assert in_the_form_of(FlopCounter("Qwen/Qwen3-30B-A3B", backend).flops_per_token(8192), "1.93e11") == "1.93e11"
