"""The real model is the judge: for every supported type, the bare default config, altered ones and
every bundled file, our parameter table equals the transformers model's on meta, name by name and
shape by shape, and our forward matmul FLOPs equal what FlopCounterMode sees, weights and mixers
apart, at two lengths. Tables are compared at full depth; work on as many of the first layers as show
each kind, since the rest are these again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from altered import alterations

from flopcalc import ESTIMATORS, FlopcalcError, InvalidConfig
from flopcalc.config import read_config
from flopcalc.facts import bundled_configs, real_models
from flopcalc.survey import build_with, no_real_model, not_run, shallow
from flopcalc.verify import build_real_model, verify


class DoesNotRun(Exception):
    """The real model is built, and its forward pass cannot run."""


def assert_equal(config: dict[str, Any]) -> None:
    table = verify(config, lengths=())
    assert table.missing == [] and table.surplus == []
    result = verify(shallow(ESTIMATORS[read_config(config)[0]].schema, config))
    assert result.missing == [] and result.surplus == []
    if result.model_type in not_run():
        assert result.not_run is not None, "runs after all: take it off the list"
        return
    if result.not_run is not None:
        raise DoesNotRun(result.not_run)
    for comparison in result.flops:
        assert comparison.weights == comparison.weights_seen, comparison
        assert comparison.mixers == comparison.mixers_seen, comparison
        assert comparison.weights > 0


def runs(config: dict[str, Any]) -> bool:
    """Whether transformers builds the model and runs it."""
    import torch

    try:
        build_real_model(*read_config(config))(torch.zeros(1, 48, dtype=torch.long, device="meta"), use_cache=False)
    except Exception:
        return False
    return True


JUDGED = [model_type for model_type in ESTIMATORS if model_type not in no_real_model()]


@pytest.mark.parametrize("model_type", JUDGED)
def test_default_config_equals_the_real_model(model_type: str) -> None:
    """Its work is that of the altered config `few_layers`, where it has more layers."""
    config = build_with(model_type)
    if shallow(ESTIMATORS[model_type].schema, config) == config:
        assert_equal(config)
    else:
        table = verify(config, lengths=())
        assert table.missing == [] and table.surplus == []


def judged(label: str, config: dict[str, Any]) -> bool:
    """Compare an altered config; False where transformers itself refuses it."""
    try:
        assert_equal(config)
    except DoesNotRun:  # a head_dim that its rotary embedding reads and its projections do not
        return False
    except InvalidConfig:
        assert not runs(config), f"{label}: our schema refuses what transformers runs"
        return False
    except FlopcalcError as error:
        if "cannot build" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("model_type", JUDGED)
def test_altered_configs_equal_the_real_model(model_type: str) -> None:
    altered = dict(alterations(ESTIMATORS[model_type].schema, build_with(model_type)))
    equal = [label for label, config in altered.items() if judged(label, config)]
    assert len(equal) >= 3, equal
    assert "few_layers" in equal or "few_layers" not in altered


def _bundled() -> list[Path]:
    return [path for path in bundled_configs().values() if path.parent.name not in no_real_model()]


@pytest.mark.parametrize("path", _bundled(), ids=lambda path: path.stem)
def test_bundled_model_equals_the_real_model(path: Path) -> None:
    try:
        assert_equal(json.loads(path.read_text()))
    except DoesNotRun:
        assert path.stem in real_models()["file_not_run"]
