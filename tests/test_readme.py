"""The README says what really comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import flopcalc
from flopcalc import FlopCounter, Lora, Training, estimators
from flopcalc.cli import group
from flopcalc.cli.models import markdown_table

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def printed(command: str) -> list[str]:
    result = CliRunner().invoke(group, command.split()[1:], standalone_mode=False)
    assert result.exception is None
    return [" ".join(line.split()) for line in result.output.splitlines()]


def test_the_first_block_installs_and_runs_then_installs_and_tests() -> None:
    run, test = (line.partition("#")[0] for line in BLOCKS[0][1].splitlines())
    assert run.startswith("pip install . && flopcalc estimate") and "pytest" in test
    shown = [" ".join(line.split()) for line in BLOCKS[1][1].splitlines()]
    assert printed(run.partition("&&")[2].strip()) == shown


@pytest.mark.parametrize("block", [body for _, body in BLOCKS if "$ flopcalc" in body])
def test_pasted_output_is_that_of_the_command(block: str) -> None:
    for command, shown in re.findall(r"^\$ (flopcalc .*)\n((?:(?!\$).*\n)*)", block, re.MULTILINE):
        real = printed(command)
        for line in shown.splitlines():
            if line.strip() not in ("", "..."):
                assert " ".join(line.split()) in real


def test_numbers_in_the_examples_are_right() -> None:
    numbers = {int(number) for number in re.findall(r"\b\d{12,}\b", README)}
    lora = Training(lora=Lora(r=16, target_modules=["q_proj", "v_proj"]))
    assert numbers == {
        flopcalc.estimate_flops("Qwen/Qwen3-30B-A3B", [8192, 300, 1777]),
        FlopCounter("Qwen/Qwen3-8B")([8192]),
        FlopCounter("Qwen/Qwen3-8B", training=lora)([8192]),
    }


def test_the_table_of_types_is_generated() -> None:
    table = README.partition("<!-- types -->\n")[2].partition("\n<!-- /types -->")[0]
    assert table.splitlines() == markdown_table(), "paste the output of `flopcalc models --markdown`"


def test_the_plan_is_the_one_shown() -> None:
    lengths = [120, 900, 3000, 64, 2048, 4000, 77, 1500]
    plan = flopcalc.pack(lengths, max_tokens=4096, num_ranks=2, counter=FlopCounter("Qwen/Qwen3-8B"))
    assert str(plan.micro_batches) in README
    assert plan.summary() in README


def test_a_model_type_of_ones_own_runs_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "_registered", dict(estimators._registered))  # for this test alone
    [example] = [body for language, body in BLOCKS if language == "python" and "register(" in body]
    exec(compile(example, "README", "exec"), {"__name__": "readme"})
    assert flopcalc.is_supported("my_model")
