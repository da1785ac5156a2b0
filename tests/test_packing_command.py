"""`flopcalc pack`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flopcalc
from flopcalc.cli import main

LLAMA = "meta-llama/Llama-2-7b-hf"
LENGTHS = [8192, 1024, 8192, *[1024] * 15, 300, 300]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `flopcalc pack` on LENGTHS; gives (exit code, stdout, stderr)."""
    file = tmp_path / "lengths.txt"
    file.write_text("\n".join(map(str, LENGTHS)))

    def call(*options: str) -> tuple[int, str, str]:
        arguments = ["pack", str(file), "--model", LLAMA, "--max-tokens", "16384", "--ranks", "2", *options]
        return (main(arguments), *capsys.readouterr())

    return call


def test_the_plan_is_that_of_pack(run: Any) -> None:
    plan = flopcalc.pack(LENGTHS, max_tokens=16384, num_ranks=2, counter=flopcalc.FlopCounter(LLAMA))
    assert run() == (0, plan.summary() + "\n", "")
    code, out, err = run("--json")
    report = json.loads(out)
    assert (code, err) == (0, "")
    assert report["micro_batches"] == plan.micro_batches
    assert report["flops"] == plan.flops.tolist()
    assert report["rank_flops"] == plan.rank_flops
    assert report["makespan_flops"] == plan.makespan
    assert report["lower_bound_flops"] == plan.lower_bounds
    assert report["imbalance"] == plan.imbalance


def test_options_reach_the_plan(run: Any) -> None:
    _, out, _ = run("--json", "--sync", "step", "--multiple-of", "512", "--micro-batches", "3", "--convention", "exact")
    report = json.loads(out)
    assert (report["sync"], report["convention"]) == ("step", "exact")
    assert report["micro_batches_per_rank"] == 3
    assert sum(report["rank_tokens"]) == sum(LENGTHS) + 2 * 212
    _, out, _ = run("--json", "--pad-to-longest")
    assert sum(json.loads(out)["rank_tokens"]) == 2 * 8192 + 16 * 1024 + 2 * 1024  # 300 beside 1024


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_chart_is_written(run: Any, tmp_path: Path, ending: str) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / f"chart.{ending}"
    assert run("--plot", str(file))[0] == 0
    assert file.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ranks", "0"], "num_ranks: found 0"),
        (["--max-tokens", "4096"], "seq_lens[0]: found 8192 tokens"),
        (["--ranks", "99"], "found 20 documents"),
        (["--sync", "rank"], "--sync"),
        (["--model", "no/such-model"], "no/such-model"),
        (["--plot", "chart.txt"], "chart.txt"),
    ],
)
def test_what_cannot_be_is_one_line(run: Any, options: list[str], message: str) -> None:
    code, out, err = run(*options)
    assert (code, out) == (2, "")
    assert message in err and err.count("\n") == 1
