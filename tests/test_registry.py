"""The bundled configs, their sources, and the table that pins their numbers."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from flopcalc import CONVENTIONS, facts, is_supported
from flopcalc.cli import main
from flopcalc.cli.registry import BATCHES, compute_table, read_table
from flopcalc.config import read_config

REGISTRY = facts.folder("registry")
SOURCES = list(csv.DictReader((REGISTRY / "SOURCES.csv").open(encoding="utf-8", newline="")))


def test_every_bundled_config_has_its_source_and_stands_under_its_type() -> None:
    assert {row["file"] for row in SOURCES} == {
        file.relative_to(REGISTRY).as_posix() for file in facts.bundled_configs().values()
    }
    for row in SOURCES:
        assert read_config(REGISTRY / row["file"])[0] == row["model_type"] == row["file"].partition("/")[0]
        assert facts.find_bundled(row["hf_id"]) == facts.bundled_configs()[row["hf_id"]] == REGISTRY / row["file"]
        assert row["source"] and row["completeness"] in ("verbatim", "assembled", "default")
        assert is_supported(row["hf_id"])


@pytest.mark.parametrize(
    "name", ["", "llama", "a/b/c", "*/*", "../llama", "meta-llama/[A-Z]*", "a/\0", "Qwen/qwen3-8b"]
)
def test_a_name_that_is_not_bundled_is_not_found(name: str) -> None:
    assert facts.find_bundled(name) is None


def test_the_regression_table_is_what_the_code_computes() -> None:
    """Where this fails, `flopcalc registry check` prints the numbers; if they are meant to change,
    `flopcalc registry update` writes them anew."""
    assert read_table() == compute_table()


def test_the_regression_table_covers_every_model_and_convention() -> None:
    batches = {" ".join(map(str, batch)) for batch in BATCHES}
    assert batches == {"1024", "8192", "65536", "4096 1024 300 17"}
    assert set(read_table()) == {
        (model, convention, batch)
        for model in facts.bundled_configs()
        for convention in CONVENTIONS
        for batch in batches
    }


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A registry of two types that tests may change."""
    (tmp_path / "registry").mkdir()
    for model_type in ("qwen3_moe", "qwen3"):
        shutil.copytree(REGISTRY / model_type, tmp_path / "registry" / model_type)
    for file in REGISTRY.glob("*.json"):
        shutil.copy(file, tmp_path / "registry")
    monkeypatch.setattr(facts, "folder", lambda name: tmp_path / name)
    monkeypatch.setattr(facts, "is_checkout", lambda: True)
    facts.bundled_configs.cache_clear()
    yield tmp_path / "registry"
    facts.bundled_configs.cache_clear()


def test_a_changed_number_is_shown_row_by_row(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["registry", "update"]) == 0
    assert main(["registry", "check"]) == 0
    table = copy / "regression.csv"
    changed = table.read_text().replace(
        "Qwen/Qwen3-30B-A3B,standard,8192,307843559325696,30532122624,3041867776",
        "Qwen/Qwen3-30B-A3B,standard,8192,307843559325697,30532122624,3041867775",
    )
    changed = changed.replace("Qwen/Qwen3-8B,exact,1024,", "Qwen/Gone,exact,1024,")
    table.write_text(changed)
    capsys.readouterr()

    assert main(["registry", "check", "--json"]) == 1
    differences = json.loads(capsys.readouterr().out)["differences"]
    of_moe = {"model": "Qwen/Qwen3-30B-A3B", "convention": "standard", "seq_lens": "8192"}
    assert {**of_moe, "number": "flops", "table": 307843559325697, "computed": 307843559325696} in differences
    assert {**of_moe, "number": "active_params", "table": 3041867775, "computed": 3041867776} in differences
    assert [row["computed"] for row in differences if row["model"] == "Qwen/Gone"] == [None] * 3
    assert [row["table"] for row in differences if row["model"] == "Qwen/Qwen3-8B"] == [None] * 3
    assert len(differences) == 8

    assert main(["registry", "check"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 8
    assert "307,843,559,325,697  307,843,559,325,696" in lines[4]


def test_update_writes_what_check_computes(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["registry", "check"]) == 1  # no table yet: every row is new
    assert main(["registry", "update"]) == 0
    rows = list(csv.DictReader((copy / "regression.csv").open(newline="")))
    assert len(rows) == len(facts.bundled_configs()) * len(CONVENTIONS) * 4
    assert list(rows[0]) == ["model", "convention", "seq_lens", "flops", "params", "active_params"]
    assert main(["registry", "check"]) == 0


def test_add_files_a_config_byte_for_byte_with_its_source(copy: Path, tmp_path: Path) -> None:
    original = b'{"num_hidden_layers": 2,\r\n  "model_type": "llama", "stray": null}\n\n'
    (tmp_path / "config.json").write_bytes(original)
    args = ["registry", "add", str(tmp_path / "config.json"), "--model", "org/tiny", "--source", "a paper, table 2"]
    assert main(args) == 0
    assert (copy / "llama" / "org__tiny.json").read_bytes() == original
    (row,) = csv.DictReader((copy / "SOURCES.csv").open(newline=""))
    assert row == {
        "file": "llama/org__tiny.json", "model_type": "llama", "hf_id": "org/tiny",
        "source": "a paper, table 2", "completeness": "verbatim", "note": "",
    }  # fmt: skip
    assert facts.find_bundled("org/tiny") == copy / "llama" / "org__tiny.json"
    assert main([*args, "--note", "again"]) == 0  # filed again, not twice
    assert len(list(csv.DictReader((copy / "SOURCES.csv").open(newline="")))) == 1


@pytest.mark.parametrize(
    ("config", "model", "says"),
    [
        ('{"model_type": "llama"}', "no-organisation", "hub id"),
        ('{"model_type": "llama"}', "../up/x", "hub id"),
        ('{"model_type": "llama"}', "../x", "hub id"),
        ('{"model_type": "lama"}', "org/x", "nearest supported: llama"),
        ('{"model_type": "llama", "hidden_size": 0}', "org/x", "hidden_size"),
    ],
)
def test_add_refuses_what_could_not_be_counted(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], config: str, model: str, says: str
) -> None:
    (tmp_path / "config.json").write_text(config)
    assert main(["registry", "add", str(tmp_path / "config.json"), "--model", model, "--source", "x"]) == 2
    assert says in capsys.readouterr().err
    assert not (copy / "SOURCES.csv").exists() and not (copy / "llama").exists()


@pytest.mark.parametrize("command", [["update"], ["add", __file__, "--model", "a/b", "--source", "x"]])
def test_an_installed_registry_is_read_only(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.setattr(facts, "is_checkout", lambda: False)
    assert main(["registry", *command]) == 2
    assert "checkout" in capsys.readouterr().err
    assert not (copy / "regression.csv").exists()
