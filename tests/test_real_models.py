"""The real model is the judge: for every supported type, the bare default config, altered ones and
every bundled file, our parameter table equals the transformers model's on meta, name by name and
shape by shape, and our forward matmul FLOPs equal what FlopCounterMode sees, weights and mixers
apart, at two lengths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from altered import alterations

from flopcalc import ESTIMATORS, FlopcalcError, InvalidConfig
from flopcalc.config import read_config
from flopcalc.facts import bundled_configs
from flopcalc.verify import build_real_model, verify

UNBUILDABLE: dict[str, str] = {}
"""Types that transformers cannot build, and why: hand-derived values check them elsewhere."""

NOT_RUN: dict[str, str] = {}
"""Types whose forward pass cannot run on meta, and why: weights and shapes are still compared."""

INDEXED = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 128,
    "indexer_budget": 64,
    "indexer_compress_ratio": 4,
    "num_hidden_layers": 4,  # its indexer loops over every query
}

BASE: dict[str, dict[str, object]] = {
    "deepseek_v2": {"num_experts_per_tok": 6, "moe_intermediate_size": 1408},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 16, "moe_topk": 4},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "qwen4_exp": {"text_config": INDEXED},
    "qwen4_exp_text": INDEXED,
}
"""The smallest change that lets transformers build the default config of a type."""


def assert_equal(config: dict[str, object]) -> None:
    result = verify(config)
    assert result.missing == [] and result.surplus == []
    if result.model_type in NOT_RUN:
        assert result.not_run is not None, "runs after all: take it off the list"
        return
    assert result.not_run is None
    for comparison in result.flops:
        assert comparison.weights == comparison.weights_seen, comparison
        assert comparison.mixers == comparison.mixers_seen, comparison
        assert comparison.weights > 0


def runs(config: dict[str, object]) -> bool:
    """Whether transformers builds the model and runs it."""
    import torch

    try:
        build_real_model(*read_config(config))(torch.zeros(1, 48, dtype=torch.long, device="meta"), use_cache=False)
    except Exception:
        return False
    return True


JUDGED = [model_type for model_type in ESTIMATORS if model_type not in UNBUILDABLE]


@pytest.mark.parametrize("model_type", JUDGED)
def test_default_config_equals_the_real_model(model_type: str) -> None:
    assert_equal({"model_type": model_type, **BASE.get(model_type, {})})


def judged(label: str, config: dict[str, object]) -> bool:
    """Compare an altered config; False where transformers itself refuses it."""
    try:
        assert_equal(config)
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
    base = {"model_type": model_type, **BASE.get(model_type, {})}
    equal = [label for label, config in alterations(ESTIMATORS[model_type].schema, base) if judged(label, config)]
    assert len(equal) >= 3, equal


def _bundled() -> list[Path]:
    return [path for path in bundled_configs().values() if path.parent.name not in UNBUILDABLE]


@pytest.mark.parametrize("path", _bundled(), ids=lambda path: path.stem)
def test_bundled_model_equals_the_real_model(path: Path) -> None:
    assert_equal(json.loads(path.read_text()))
