"""The drift alarm: what `flopcalc verify --all` says of types that hold, differ or are not known."""

from __future__ import annotations

from typing import Any

import pytest

from flopcalc import estimators, register
from flopcalc.architectures.llama import LlamaConfig, llama
from flopcalc.cli import main
from flopcalc.estimators import ESTIMATORS
from flopcalc.survey import causal_types, survey
from flopcalc.tree import Linear, Module


def test_every_causal_type_of_the_installed_transformers_is_supported() -> None:
    assert len(causal_types()) >= 196
    assert [model_type for model_type in causal_types() if model_type not in ESTIMATORS] == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_type_that_holds_and_one_that_is_new(jobs: int) -> None:
    holds, new = survey(["nanochat", "not_a_type"], jobs=jobs)
    assert holds.fine and holds.supported and holds.parameters_equal and holds.flops_equal and not holds.reason
    assert not new.fine and not new.supported and new.reason == "no estimator"


@pytest.fixture
def changed_llama(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if transformers had renamed a matrix since, and made another wider."""
    monkeypatch.setattr(estimators, "_registered", dict(estimators._registered))

    def build(c: LlamaConfig) -> Module:
        model = dict(llama(c).children)["model"]
        return Module(model=model, head=Linear(c.hidden_size, c.vocab_size + 1, kind="head"))

    register("llama", LlamaConfig, replace=True)(build)


@pytest.mark.usefixtures("changed_llama")
def test_a_changed_table_is_named_and_fails_the_command(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    [finding] = survey(["llama"])
    assert not finding.fine and finding.parameters_equal is False and finding.flops_equal is False
    assert "lacks lm_head.weight [32000, 4096]" in finding.reason
    assert "has head.weight [32001, 4096] too many" in finding.reason
    monkeypatch.setattr("flopcalc.cli.verify.causal_types", lambda: ("llama",))
    monkeypatch.setattr("flopcalc.cli.verify.ESTIMATORS", {})
    assert main(["verify", "--all"]) == 1
    assert "0 of 1 types hold" in capsys.readouterr().out
