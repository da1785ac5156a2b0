"""`compare`: every difference is measured, and they sum to what separates a convention from standard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flopcalc
from flopcalc import CONVENTIONS, FlopCounter, InvalidBatch, InvalidOption, Lora, Training, compare, facts
from flopcalc.cli import main
from flopcalc.comparison import percent

QWEN3_5_MOE = "Qwen/Qwen3.5-35B-A3B"


def test_compare_is_the_function_even_after_its_module_was_imported() -> None:
    assert flopcalc.compare is compare and callable(flopcalc.compare)


@pytest.mark.parametrize("name", sorted(facts.bundled_configs()))
def test_every_bundled_model_differs_for_stated_reasons_alone(name: str) -> None:
    comparison = compare(name, [300, 4096])
    assert [row.convention for row in comparison] == list(CONVENTIONS)
    tree = flopcalc.describe(name)
    for row in comparison:
        assert row.flops == FlopCounter(tree, row.convention)([300, 4096])
        assert sum(difference.flops for difference in row.differences) == row.flops - comparison["standard"].flops
        assert sum(row.parts.values()) == row.flops - row.standard_flops
        assert all(difference.flops for difference in row.differences)
        assert all(sentence.startswith(f"{row.convention} ") and sentence.endswith(" %") for sentence in row.sentences)
    assert comparison["prime_rl"].differences == comparison["standard"].differences == ()


def test_the_sentences_of_verl_on_qwen3_8b() -> None:
    """The core is 12 * 36 * 32 * 128 * n per token, of which half goes; the embedding 6 * V * h."""
    standard = 59_905_947_648
    row = compare("Qwen/Qwen3-8B", [8192], ["verl"])["verl"]
    core, embedding, norms = 12 * 36 * 32 * 128 * 8192 // 2, 6 * 151936 * 4096, 6 * (36 * (2 * 4096 + 2 * 128) + 4096)
    assert [difference.flops for difference in row.differences] == [-8192 * core, 8192 * embedding, -8192 * norms]
    assert row.sentences == (
        f"verl halves the attention core for causality: {percent(-core, standard)}",
        f"verl counts the input embedding as a matmul: {percent(embedding, standard)}",
        f"verl leaves out norms, biases and other vectors: {percent(-norms, standard)}",
    )
    assert row.sentences[1] == "verl counts the input embedding as a matmul: +6.2 %"
    assert row.parts == {"attention": -8192 * core, "embedding": 8192 * embedding, "norm": -8192 * norms}
    assert row.ratio == (standard - core + embedding - norms) / standard


def test_the_differences_of_a_mixture_with_linear_attention() -> None:
    comparison = compare(QWEN3_5_MOE, [8192], ["megatron_lm", "slime", "hf_trainer"])
    words = {row.convention: {difference.words for difference in row.differences} for row in comparison}
    assert "leaves out routers" in words["megatron_lm"] & words["slime"]
    assert "counts the delta rule at 24 instead of 18 training FLOPs per number of its state" in words["megatron_lm"]
    assert "leaves out output gates of attention" in words["slime"] - words["megatron_lm"]
    assert comparison["hf_trainer"].differences[0].words == "counts every expert, not the active ones"


def test_overrides_of_a_model_type_are_differences_too() -> None:
    words = [difference.words for difference in compare("openai/gpt-oss-20b", [4096], ["veomni"])["veomni"].differences]
    assert "counts the pairs of windows key by key" in words


def test_where_a_counter_prints_something_else_a_row_says_so() -> None:
    comparison = compare("mistralai/Mixtral-8x22B-v0.1", [1024], ["verl", "standard"])
    assert comparison["verl"].printed_otherwise == "prints 0 for a type that it does not know"
    assert comparison["standard"].printed_otherwise is None
    assert compare("Qwen/Qwen3-8B", [1024], ["verl"])["verl"].printed_otherwise is None


def test_images_and_adapters_take_part() -> None:
    images = compare("Qwen/Qwen3-VL-4B-Instruct", [512], ["verl", "trl"], images=[1024])
    assert any(difference.words == "runs mergers on every patch" for difference in images["verl"].differences)
    assert any(difference.words == "leaves out towers" for difference in images["trl"].differences)
    training = Training(lora=Lora(r=8, target_modules="all-linear"))
    adapted = compare({"model_type": "llama"}, [512], ["torchtitan"], training=training)["torchtitan"]
    assert [difference.words for difference in adapted.differences] == [
        "counts frozen weights and adapters as full training"
    ]
    assert adapted.flops == FlopCounter({"model_type": "llama"}, "torchtitan")([512])


@settings(max_examples=10, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5000), min_size=1, max_size=5),
    name=st.sampled_from([QWEN3_5_MOE, "openai/gpt-oss-20b", "mistralai/Mistral-7B-v0.1"]),
    phase=st.sampled_from(["train", "forward"]),
)
def test_differences_sum_on_any_batch(lengths: list[int], name: str, phase: Any) -> None:
    for row in compare(name, lengths, phase=phase):
        assert sum(difference.flops for difference in row.differences) == row.flops - row.standard_flops


def test_lengths_come_in_any_form() -> None:
    totals = {
        compare({"model_type": "llama"}, lengths, ["exact"])["exact"].flops
        for lengths in ([7, 300], (7, 300), iter([7, 300]), np.array([7, 300]))
    }
    assert totals == {FlopCounter({"model_type": "llama"}, "exact")([7, 300])}


def test_depths_of_multi_token_prediction_take_part() -> None:
    comparison = compare({"model_type": "deepseek_v3"}, [4096], ["verl", "maxtext"], training=Training(mtp=1))
    words = {row.convention: {difference.words for difference in row.differences} for row in comparison}
    assert "counts no depths of multi-token prediction" in words["verl"]
    assert {
        "counts depths of multi-token prediction without their pass through the head",
        "leaves out projections into depths of multi-token prediction",
    } <= words["maxtext"]


def test_a_convention_of_ones_own_is_compared_like_a_preset() -> None:
    own = CONVENTIONS["standard"].changed(name="ours", pairs="exact", weights=frozenset({"linear"}))
    row = compare({"model_type": "llama"}, [100], [own])["ours"]
    assert [difference.words for difference in row.differences] == [
        "leaves out the output head",
        "counts causal pairs key by key",
        "leaves out norms, biases and other vectors",
    ]


@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_a_batch_without_tokens_compares_nothing(lengths: list[int]) -> None:
    with pytest.raises(InvalidBatch, match="no tokens"):
        compare({"model_type": "llama"}, lengths)


def test_an_unknown_convention_is_named() -> None:
    with pytest.raises(InvalidOption, match="'verll'"):
        compare({"model_type": "llama"}, [1], ["verll"])


@pytest.mark.parametrize(
    ("flops", "text"), [(12, "+1.2 %"), (-123, "-12.3 %"), (8515, "+851.5 %"), (1, "+0.1 %"), (0.31, "+0.031 %")]
)
def test_small_shares_keep_two_digits(flops: float, text: str) -> None:
    assert percent(flops, 1000) == text  # type: ignore[arg-type]


# --- the command ---------------------------------------------------------------------------------


def test_the_command_prints_rows_sentences_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "mistralai/Mixtral-8x22B-v0.1", "--seq-len", "4096", "--convention", "verl"]) == 0
    out = capsys.readouterr().out
    assert "4,096 tokens in 1 document" in out
    assert "verl halves the attention core for causality: -" in out
    assert "but verl's own counter prints 0 for a type that it does not know" in out


def test_the_commands_json_is_the_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs = tmp_path / "docs.txt"
    docs.write_text("100\n200\n", encoding="utf-8")
    args = ["compare", "Qwen/Qwen3-8B", "--docs", str(docs), "--seq-len", "50", "--batch", "7,8", "--json"]
    assert main(args) == 0
    found = json.loads(capsys.readouterr().out)
    comparison = compare("Qwen/Qwen3-8B", [50, 7, 8, 100, 200])
    assert (found["documents"], found["tokens"]) == (5, 365)
    assert [(row["convention"], row["flops"]) for row in found["rows"]] == [
        (row.convention, row.flops) for row in comparison
    ]
    for row in found["rows"]:
        assert row["flops_per_token"] == row["flops"] / 365
        standard = comparison["standard"].flops
        assert sum(difference["flops"] for difference in row["differences"]) == row["flops"] - standard


def test_the_command_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "Qwen/Qwen3-8B"]) == 2
    assert "--seq-len" in capsys.readouterr().err


# --- pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["png", "svg"])
@pytest.mark.parametrize("command", ["compare", "estimate"])
def test_a_plot_is_written_in_the_format_of_its_name(
    command: str, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"picture.{ending}"
    args = [command, "Qwen/Qwen3-8B", "--seq-len", "1024", "--convention", "standard", "--convention", "verl"]
    assert main([*args, "--plot", str(path)]) == 0
    head = path.read_bytes()[:200]
    assert head.startswith(b"\x89PNG") if ending == "png" else b"<?xml" in head


def test_a_plot_in_an_unknown_format_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main(["compare", "Qwen/Qwen3-8B", "--seq-len", "8", "--plot", str(tmp_path / "picture.doc")]) == 2
    assert "expected a file that ends in ." in capsys.readouterr().err


def test_panels_hold_all_work_and_are_shared_by_conventions_that_agree() -> None:
    from flopcalc.plots import _panels

    counters = [FlopCounter(QWEN3_5_MOE, name) for name in ("standard", "prime_rl", "verl")]
    panels = _panels(counters, [1024, 8192])
    assert [panel.names for panel in panels] == [("standard", "prime_rl"), ("verl",)]
    for panel, counter in zip(panels, counters[1:], strict=True):
        assert panel.totals == pytest.approx([counter.flops_per_token(n) for n in (1024, 8192)], rel=1e-12)
    assert "input embedding" in panels[1].bands and "input embedding" not in panels[0].bands
