"""`flopcalc mfu` and `flopcalc budget`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flopcalc.cli import main

QWEN = "Qwen/Qwen3-8B"
# References of others: 59,905,947,648 FLOPs a token at 8192 (torchtitan), 989.5 TFLOP/s (half of the sheet's 1979)
PER_TOKEN = 59_905_947_648


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


def test_mfu_of_tokens_per_second(run: Any, run_json: Any) -> None:
    words = (
        "mfu",
        QWEN,
        "--device",
        "H100-SXM",
        "--devices",
        "64",
        "--tokens-per-second",
        "410000",
        "--seq-len",
        "8192",
    )
    answer = run_json(*words)
    assert answer["peak_flops_per_second"] == 64 * 989.5e12
    assert (answer["peak_source"], answer["device"], answer["dtype"]) == ("table", "NVIDIA H100 SXM5", "bf16")
    (row,) = answer["rows"]
    assert row["mfu"] == pytest.approx(410_000 * PER_TOKEN / (64 * 989.5e12))
    assert row["tflops_per_device"] == pytest.approx(410_000 * PER_TOKEN / 64 / 1e12)
    assert "hfu" not in row
    code, out, _ = run(*words)
    assert code == 0
    assert "38.78" in out
    assert "383.77" in out
    assert "MFU (%)" in out


def test_mfu_of_a_step_of_documents(run_json: Any, tmp_path: Any) -> None:
    documents = tmp_path / "documents.txt"
    documents.write_text("8192\n8192\n")
    common = ("mfu", QWEN, "--peak-flops", "1e16", "--step-seconds", "0.5", "--recompute")
    (row,) = run_json(*common, "full", "--docs", str(documents))["rows"]
    assert row["model_flops"] == 2 * 8192 * PER_TOKEN
    assert row["mfu"] == pytest.approx(2 * 8192 * PER_TOKEN / 0.5 / 1e16)
    assert row["hfu"] == pytest.approx(row["mfu"] * 4 / 3)
    assert run_json(*common, "1", "--batch", "8192,8192")["rows"] == [row]


def test_mfu_says_what_it_doubts(run: Any) -> None:
    code, out, err = run(
        "mfu", QWEN, "--device", "H100-SXM", "--batch", "8192", "--step-seconds", "0.1", "--convention", "all", "--json"
    )
    assert code == 0
    assert err.count("above the peak") == 1
    assert all(row["implausible"] for row in json.loads(out)["rows"])


def test_budget_of_a_run(run: Any, run_json: Any) -> None:
    words = ("budget", QWEN, "--tokens", "15T", "--seq-len", "8192", "--device", "H100-SXM", "--devices", "1024")
    answer = run_json(*words, "--mfu", "0.4")
    (row,) = answer["rows"]
    # the last document is half as long: 12 * 32 heads * 128 * 36 layers * 4096 FLOPs a token less
    whole, rest = divmod(15 * 10**12, 8192)
    assert (whole, rest) == (1_831_054_687, 4096)
    shorter = PER_TOKEN - 12 * 36 * 32 * 128 * 4096
    assert row["flops"] == whole * 8192 * PER_TOKEN + 4096 * shorter
    assert row["device_hours"] == pytest.approx(row["flops"] / (0.4 * 989.5e12) / 3600)
    assert row["days"] == pytest.approx(row["device_hours"] / 1024 / 24)
    assert row["tokens_per_second"] == pytest.approx(15e12 / (row["days"] * 86400))
    code, out, _ = run(*words, "--mfu", "0.4")
    assert code == 0
    assert "25.66" in out
    assert "630,642" in out


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("15T", 15 * 10**12), ("0.1t", 10**11), ("300B", 3 * 10**11), ("1.5e12", 15 * 10**11), ("2_000_000", 2 * 10**6)],
)
def test_tokens_are_read_exactly(run_json: Any, text: str, tokens: int) -> None:
    words = ("--seq-len", "1", "--peak-flops", "1e15", "--mfu", "1")
    assert run_json("budget", QWEN, "--tokens", text, *words)["tokens"] == tokens


MFU = ("mfu", QWEN, "--device", "H100-SXM")
BUDGET = ("budget", QWEN, "--device", "H100-SXM", "--seq-len", "8192", "--tokens")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("mfu", QWEN, "--device", "H100", "--seq-len", "8", "--tokens-per-second", "1"), ["H100 PCIe", "H100 NVL"]),
        (("mfu", QWEN, "--device", "Foo 9000", "--seq-len", "8", "--tokens-per-second", "1"), ["Foo 9000"]),
        (("mfu", QWEN, "--dtype", "bf17", "--seq-len", "8", "--tokens-per-second", "1"), ["bf17"]),
        (
            ("mfu", "nobody/nothing.json", "--device", "H100-SXM", "--seq-len", "8", "--tokens-per-second", "1"),
            ["nobody"],
        ),
        ((*MFU, "--seq-len", "8"), ["--tokens-per-second"]),
        ((*MFU, "--tokens-per-second", "8"), ["--seq-len"]),
        ((*MFU, "--seq-len", "8", "--batch", "8", "--tokens-per-second", "8"), ["--batch"]),
        ((*MFU, "--seq-len", "8", "--step-seconds", "8"), ["--docs"]),
        ((*MFU, "--seq-len", "8", "--tokens-per-second", "0"), ["speed of 0"]),
        ((*MFU, "--seq-len", "8", "--tokens-per-second", "nan"), ["speed of nan"]),
        ((*MFU, "--batch", "0", "--step-seconds", "1"), ["no tokens"]),
        ((*MFU, "--batch", "x", "--step-seconds", "1"), ["'x'"]),
        ((*MFU, "--seq-len", "8", "--tokens-per-second", "1", "--recompute", "half"), ["'half'"]),
        ((*MFU, "--seq-len", "8", "--tokens-per-second", "1", "--recompute", "2"), ["recompute: found 2.0"]),
        ((*MFU, "--peak-flops", "0", "--seq-len", "8", "--tokens-per-second", "1"), ["peak: found 0.0"]),
        ((*BUDGET, "15X", "--mfu", "0.4"), ["'15X'"]),
        ((*BUDGET, "0.5", "--mfu", "0.4"), ["'0.5'"]),
        ((*BUDGET, "-3", "--mfu", "0.4"), ["'-3'"]),
        ((*BUDGET, "._e1T", "--mfu", "0.4"), ["._e1T"]),
        ((*BUDGET, "1T", "--mfu", "40"), ["40"]),
        ((*BUDGET, "1T", "--mfu", "0"), ["0"]),
        ((*BUDGET, "1T", "--mfu", "nan"), ["--mfu: found nan"]),
        ((*BUDGET, "1T"), ["--mfu"]),
    ],
)
def test_what_cannot_be_used_is_one_line(run: Any, words: tuple[str, ...], names: list[str]) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert all(name in err for name in names)
