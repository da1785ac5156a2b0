"""The command line: right numbers, one line for any bad input, nothing heavy loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flopcalc
from flopcalc.cli import COMMANDS, LazyGroup, group, main

QWEN = "Qwen/Qwen3-30B-A3B"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(flopcalc.__file__).parent.parent)}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line; gives (exit code, stdout, stderr)."""

    def call(*args: str) -> tuple[int, str, str]:
        code = main(list(args))
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def run_json(run: Any) -> Any:
    def call(*args: str) -> Any:
        code, out, err = run(*args, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


def cells(table: str) -> list[list[str]]:
    """A plain table's lines, cut where two spaces or more separate columns."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in table.splitlines()]


# --- estimate --------------------------------------------------------------------------------------


def test_estimate_shows_each_length_as_a_row(run: Any) -> None:
    code, out, _ = run("estimate", QWEN, "--seq-len", "8192", "--seq-len", "65536")
    assert code == 0
    title, *table = out.splitlines()
    assert title == "Qwen/Qwen3-30B-A3B (qwen3_moe), train"
    headings, *rows = cells("\n".join(table))
    assert headings == [
        "convention", "documents", "tokens", "FLOPs", "total (PFLOPs)", "per token (GFLOPs)", "params", "active params",
    ]  # fmt: skip
    assert rows[0][:4] == ["standard", "1", "8,192", "307,843,559,325,696"]
    assert [row[5] for row in rows] == ["37.58", "172.87"]  # the published table: 3.7579e10 and 1.7287e11
    assert rows[1][-2:] == ["30,532,122,624", "3,041,867,776"]


def test_estimate_counts_a_batch_as_one_row(run_json: Any, tmp_path: Path) -> None:
    (tmp_path / "docs.txt").write_text("8192\n300\n\n1777\n")
    answer = run_json(
        "estimate", QWEN, "--seq-len", "8192", "--batch", "8192,300,1777", "--docs", str(tmp_path / "docs.txt")
    )
    one, batch, file = answer["rows"]
    counter = flopcalc.FlopCounter(QWEN)
    assert one["flops"] == counter([8192])
    assert (batch["documents"], batch["tokens"]) == (3, 10269)
    assert batch == file
    assert batch["flops"] == counter([8192, 300, 1777])
    assert batch["flops_per_token"] == counter([8192, 300, 1777]) / 10269
    assert answer["params"] == 30_532_122_624
    assert (answer["model_type"], answer["phase"]) == ("qwen3_moe", "train")


@pytest.mark.parametrize("text", ["[8192, 300]", "8192 300", "8192,300", " 8192 ,\n 300\n", "\ufeff8192\n300"])
def test_documents_are_read_from_any_plain_list(run_json: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "docs").write_text(text)
    (row,) = run_json("estimate", QWEN, "--docs", str(tmp_path / "docs"))["rows"]
    assert (row["documents"], row["tokens"]) == (2, 8492)


def test_estimate_all_conventions_and_forward_alone(run_json: Any) -> None:
    rows = run_json("estimate", QWEN, "--seq-len", "4096", "--convention", "all", "--phase", "forward")["rows"]
    assert [row["convention"] for row in rows] == list(flopcalc.CONVENTIONS)
    (train,) = run_json("estimate", QWEN, "--seq-len", "4096", "--convention", "exact")["rows"]
    (forward,) = [row for row in rows if row["convention"] == "exact"]
    assert train["flops"] == 3 * forward["flops"]


@pytest.mark.parametrize("by", ["kind", "module"])
def test_parts_sum_to_the_total(run_json: Any, by: str) -> None:
    (row,) = run_json("estimate", QWEN, "--batch", "4096,300", "--by", by, "--depth", "1")["rows"]
    assert sum(row[f"flops_by_{by}"].values()) == row["flops"]
    assert set(row["flops_by_kind" if by == "kind" else "flops_by_module"]) == (
        {"linear", "norm", "attention", "router", "experts", "head"} if by == "kind" else {"model", "lm_head"}
    )


def test_the_breakdown_table_shows_shares_in_percent(run: Any) -> None:
    _, out, _ = run("estimate", QWEN, "--seq-len", "4096", "--by", "kind")
    headings, *rows = cells("\n".join(out.splitlines()[1:]))
    assert headings == ["convention", "documents", "tokens", "kind", "FLOPs", "share (%)"]
    assert rows[0][3:] == ["(all)", f"{flopcalc.estimate_flops(QWEN, [4096]):,}", "100.00"]
    assert sum(float(row[-1]) for row in rows[1:]) == pytest.approx(100, abs=0.05)


def test_nothing_to_count_is_zero_and_not_a_division(run: Any, run_json: Any) -> None:
    (row,) = run_json("estimate", QWEN, "--seq-len", "0")["rows"]
    assert (row["flops"], row["flops_per_token"]) == (0, None)
    assert run("estimate", QWEN, "--batch", "")[0] == 0


# --- params and models -----------------------------------------------------------------------------


def test_params_counts_and_lists(run: Any, run_json: Any) -> None:
    answer = run_json("params", QWEN, "--table")
    assert answer["params"] == 30_532_122_624
    assert answer["matmul_params"] == 3_041_656_832
    assert sum(row["params"] for row in answer["table"]) == answer["params"]
    assert {"name": "lm_head.weight", "shape": [151936, 2048], "params": 311_164_928} in answer["table"]
    headings, *rows = cells("\n".join(run("params", QWEN, "--table")[1].splitlines()[1:]))
    assert headings == ["name", "shape", "params"]
    assert ["lm_head.weight", "[151936, 2048]", "311,164,928"] in rows
    assert "table" not in run_json("params", QWEN)


def test_models_lists_every_type_and_can_be_searched(run: Any, run_json: Any) -> None:
    assert [row["model_type"] for row in run_json("models")] == list(flopcalc.supported_model_types())
    by_type = {row["model_type"]: row["models"] for row in run_json("models", "QWEN3-30b")}
    assert by_type == {"qwen3_moe": ["Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B-FP8"]}
    assert QWEN in run("models", "qwen3_moe")[1]
    assert "no model type and no bundled model" in run("models", "no-such-model")[2]


# --- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), None),
        (("estimat", QWEN), "No such command"),
        (("estimate",), "Missing argument 'MODEL'"),
        (("estimate", QWEN), "--seq-len, --batch or --docs"),
        (("estimate", QWEN, "--seq-len", "-5"), "-5"),
        (("estimate", QWEN, "--seq-len", "8.5"), "8.5"),
        (("estimate", QWEN, "--seq-len", "many"), "many"),
        (("estimate", QWEN, "--seq-len", "9" * 5000), "--seq-len"),
        (("estimate", QWEN, "--batch", "4096,-3"), r"seq_lens[1]: found -3"),
        (("estimate", QWEN, "--batch", "4096,1e3"), "'1e3'"),
        (("estimate", QWEN, "--batch", "9" * 5000), "--batch"),
        (("estimate", QWEN, "--docs", "no-such-file"), "no-such-file"),
        (("estimate", QWEN, "--docs", "."), "--docs"),
        (("estimate", QWEN, "--seq-len", "1", "--convention", "nope"), "torchtitan"),
        (("estimate", QWEN, "--seq-len", "1", "--phase", "nope"), "'train', 'forward'"),
        (("estimate", QWEN, "--seq-len", "1", "--depth", "0"), "--depth"),
        (("estimate", "no-such-file.json", "--seq-len", "1"), "no-such-file.json"),
        (("estimate", "\0", "--seq-len", "1"), "config.json"),
        (("estimate", "", "--seq-len", "1"), "config.json"),
        (("params", "."), "without config.json"),
        (("params", "t5"), "model_type 't5' is not counted: an encoder and a decoder"),
        (("estimate", QWEN, "--batch", "1,,2"), "found ''"),
        (("verify", "--all", "llama"), "not both"),
        (("registry",), "Missing command"),
        (("registry", "nope"), "nope"),
        (("registry", "add", __file__, "--model", "a/b", "--source", "x"), "not a readable config.json"),
        (("--nope",), "--nope"),
    ],
)
def test_bad_input_is_one_line_that_says_what(run: Any, args: tuple[str, ...], says: str | None) -> None:
    code, out, err = run(*args)
    if says is None:  # nothing asked: the help
        assert code == 0 and all(name in out for name in ("estimate", "params", "models", "registry"))
        return
    assert code == 2
    assert out == ""
    assert err.startswith("flopcalc: ") and err.count("\n") == 1 and len(err) < 1100
    assert says in err


def test_a_binary_file_of_lengths_is_an_error(run: Any, tmp_path: Path) -> None:
    (tmp_path / "docs").write_bytes(b"\xff\xfe\x00\x80")
    code, _, err = run("estimate", QWEN, "--docs", str(tmp_path / "docs"))
    assert code == 2 and "not a text file" in err


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    args=st.lists(
        st.one_of(
            st.sampled_from(["estimate", "params", "models", QWEN, "--json", "--batch", "--seq-len", "--by", "kind"]),
            st.sampled_from(["--docs", "--convention", "all", "--table", "8192", "--phase", "--", "-", "registry"]),
            st.text(max_size=8).filter(lambda text: not text.isascii() or not text.isalnum()),
        ),
        max_size=7,
    )
)
def test_no_command_line_ends_in_a_traceback(args: list[str], run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("flopcalc.config._fetch", refuse)
    assert run(*args)[0] in (0, 2)


def refuse(name: str) -> Path:
    raise flopcalc.InvalidConfig(f"{name}: no network in tests")


# --- the process -----------------------------------------------------------------------------------


def python(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=ENVIRONMENT, **options)


@pytest.mark.parametrize(
    "code",
    [
        "import flopcalc",
        "import flopcalc; flopcalc.FlopCounter({'model_type': 'qwen3'})([8192, 300])",
        f"from flopcalc.cli import main; main(['estimate', '{QWEN}', '--seq-len', '8192', '--json'])",
        "from flopcalc.cli import main; main(['models'])",
        "from flopcalc.cli import main; main(['--help'])",
    ],
)
def test_counting_loads_no_heavy_library(code: str) -> None:
    heavy = "'torch', 'transformers', 'numpy', 'huggingface_hub', 'scipy', 'matplotlib'"
    result = python("-c", f"{code}\nimport sys\nassert not {{{heavy}}} & sys.modules.keys(), sys.modules.keys()")
    assert result.returncode == 0, result.stderr[-500:]


def test_a_reader_that_leaves_is_no_error() -> None:
    command = [sys.executable, "-m", "flopcalc", "params", QWEN, "--table"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1


def test_an_interrupt_is_one_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flopcalc.cli.estimate.read_documents", interrupted)  # while it waits for its input
    code, out, err = run("estimate", QWEN, "--docs", __file__)
    assert (code, out, err.strip()) == (130, "", "flopcalc: interrupted")


def test_a_pipe_gets_plain_lines_that_are_never_wrapped() -> None:
    result = python("-m", "flopcalc", "estimate", QWEN, "--seq-len", "8192", "--convention", "all")
    lines = result.stdout.splitlines()
    assert len(lines) == 2 + len(flopcalc.CONVENTIONS)
    assert result.stdout.isascii() and "\x1b" not in result.stdout


def test_every_command_has_help_and_a_json_switch() -> None:
    context = group.make_context("flopcalc", [], resilient_parsing=True)
    assert isinstance(group, LazyGroup) and set(group.list_commands(context)) <= set(COMMANDS)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None and command.help and command.short_help
        leaves = getattr(command, "commands", {name: command})
        for leaf in set(leaves) - {"add"}:
            assert "--json" in {option for param in leaves[leaf].params for option in param.opts}, leaf


def test_the_version_is_the_package_s(run: Any) -> None:
    assert run("--version")[1].split()[-1] == flopcalc.__version__


# --- what learns, and what towers read ------------------------------------------------------------

TINY = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 256}  # fmt: skip


def test_lora_and_frozen_parts_from_the_shell(run_json: Any, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(TINY))
    adapter = tmp_path / "adapter_config.json"
    adapter.write_text(json.dumps({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj", "o_proj"]}))
    words = ("estimate", str(config), "--seq-len", "100")
    expected = flopcalc.estimate_flops(
        TINY, [100], training=flopcalc.Training(lora={"r": 4, "target_modules": ["q_proj", "o_proj"]})
    )
    assert run_json(*words, "--lora", str(adapter))["rows"][0]["flops"] == expected
    assert run_json(*words, "--lora", str(tmp_path))["rows"][0]["flops"] == expected
    frozen = flopcalc.estimate_flops(TINY, [100], training=flopcalc.Training(frozen=("model.layers.0", "*.mlp")))
    options = ("--frozen", "model.layers.0", "--frozen", "*.mlp")
    assert run_json(*words, *options)["rows"][0]["flops"] == frozen
    assert frozen != run_json(*words)["rows"][0]["flops"]
    head = flopcalc.estimate_flops(TINY, [100], training=flopcalc.Training(trained=("lm_head",)))
    assert run_json(*words, "--trained", "lm_head")["rows"][0]["flops"] == head


@pytest.mark.parametrize("content", ["{", "[]", '{"r": 4}', '{"peft_type": "IA3"}'])
def test_a_file_that_is_no_lora_is_named(run: Any, tmp_path: Path, content: str) -> None:
    adapter = tmp_path / "adapter_config.json"
    adapter.write_text(content)
    code, _, err = run("estimate", QWEN, "--seq-len", "1", "--lora", str(adapter))
    assert code == 2
    assert "adapter_config.json" in err or "IA3" in err


def test_images_are_counted_in_every_row(run_json: Any) -> None:
    model = "Qwen/Qwen2.5-VL-3B-Instruct"
    words = ("--seq-len", "600", "--seq-len", "700", "--image", "1,32,32", "--image", "1,8,16")
    answer = run_json("estimate", model, *words)
    expected = [flopcalc.estimate_flops(model, [n], images=[(1, 32, 32), (1, 8, 16)]) for n in (600, 700)]
    assert [row["flops"] for row in answer["rows"]] == expected
