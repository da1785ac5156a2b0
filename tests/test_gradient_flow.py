"""Autograd is the judge of what feeds what: with a few parameters learning, picked at random, the
products of a forward and a backward pass on meta equal ours, for one type of every architecture file."""

from __future__ import annotations

import random
from typing import Any

import pytest
from trained import counted, is_recurrent, learn, seen

from flopcalc import ESTIMATORS, Training, describe
from flopcalc.adapters import modules
from flopcalc.config import read_config
from flopcalc.survey import build_with, no_real_model, not_run, shallow
from flopcalc.tree import Linear
from flopcalc.verify import build_real_model

UNJUDGED: dict[str, str] = {}
"""Types whose flow is not judged, and why."""


def one_of_each_file() -> dict[str, str]:
    """The first type of each architecture file that can be run."""
    found: dict[str, str] = {}
    for model_type, estimator in ESTIMATORS.items():
        if model_type not in {*no_real_model(), *not_run(), *UNJUDGED}:
            found.setdefault(estimator.build.__module__, model_type)
    return found


def few(names: list[str]) -> set[str]:
    """A twentieth of the parameters beyond the embeddings, and one of the last ones."""
    rng = random.Random(1)
    inner = [name for name in names if "embed" not in name]
    return {name for name in inner if rng.random() < 0.05} | {inner[-1]}


@pytest.mark.parametrize("model_type", one_of_each_file().values())
def test_passes_are_those_of_autograd(model_type: str) -> None:
    import torch

    fields: dict[str, Any] = shallow(ESTIMATORS[model_type].schema, build_with(model_type))
    tree, model = describe(fields), build_real_model(*read_config(fields)).train()
    learning = few([name for name, _ in model.named_parameters()])
    tokens = 12 if is_recurrent(tree) else 260  # longer than a block of compressed keys
    ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    mask = torch.zeros(1, 1, tokens, tokens, dtype=torch.bfloat16, device="meta")
    positions = torch.arange(tokens, device="meta").unsqueeze(0)
    learn(model, learning.__contains__)
    found = seen(model, is_recurrent(tree), input_ids=ids, attention_mask=mask, position_ids=positions)
    ours = counted(tree, Training(trained=tuple(learning)), [tokens])
    if found.mixers is None or ours.mixers is None:
        assert ours == found
    else:  # some run weights by the operator of mixers, as experts that all see all tokens
        assert ours.weights + ours.mixers == found.weights + found.mixers


@pytest.mark.parametrize("model_type", one_of_each_file().values())
def test_linear_layers_are_those_of_torch(model_type: str) -> None:
    """What "all-linear" means to peft."""
    import torch
    from transformers.pytorch_utils import Conv1D

    fields: dict[str, Any] = shallow(ESTIMATORS[model_type].schema, build_with(model_type))
    ours = {name for name, node in modules(describe(fields)) if isinstance(node, Linear)}
    real = build_real_model(*read_config(fields)).named_modules()
    assert ours == {name for name, module in real if isinstance(module, (torch.nn.Linear, Conv1D))}
