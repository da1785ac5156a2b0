"""Autograd is the judge of what feeds what: with a few parameters learning, picked at random, the
products of a forward and a backward pass on meta equal ours, for one type of every architecture file."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from trained import counted, is_recurrent, learn, reads_streams, seen

from flopcalc import ESTIMATORS, Training, describe
from flopcalc.adapters import modules
from flopcalc.config import read_config
from flopcalc.survey import build_with, no_real_model, not_run, shallow
from flopcalc.tree import Linear, Module, walk
from flopcalc.verify import build_real_model

_BY_BMM = "runs weights by the operator of mixers, which a recurrence of the same module runs too"
_ALL_EXPERTS = "its experts all see all tokens"
_STREAMS = "the weights by which a layer's output enters its streams do not reach its input"
UNJUDGED = {
    "cpmant": "one position bias enters every attention core",
    "dory": "scales of its queries and keys are bare vectors",
    "falcon_mamba": _BY_BMM,
    "inkling_text": _ALL_EXPERTS,
    "jamba": _BY_BMM,
    "llama4_text": _ALL_EXPERTS,
    "mamba": _BY_BMM,
    "qwen4_exp": _STREAMS,
    "qwen4_exp_text": _STREAMS,
    "recurrent_gemma": _BY_BMM,
    "reformer": "trains in chunks that verify does not run",
    "rwkv": _BY_BMM,
    "xlnet": "relative positions, which carry no gradient, meet a matrix of their own",
    "zamba": _BY_BMM,
    "zaya": "the projections of its attention lie in one module",
}
"""Types whose flow is not judged, or not followed into every corner, and why."""


def one_of_each_file() -> dict[str, str]:
    """The first type of each architecture file that can be run."""
    found: dict[str, str] = {}
    for model_type, estimator in ESTIMATORS.items():
        if model_type not in {*no_real_model(), *not_run(), *UNJUDGED}:
            found.setdefault(estimator.build.__module__, model_type)
    return found


def few(names: list[str]) -> set[str]:
    """A twentieth of the parameters, and one of the last ones."""
    rng = random.Random(1)
    return {name for name in names if rng.random() < 0.05} | {names[-1]}


def inner_parameters(tree: Module) -> set[str]:
    """Those of layers that text runs through, behind the embeddings."""
    visits = [visit for visit in walk(tree, expand=True) if visit.stream.source == "text"]
    return {
        f"{visit.path}.{t.name}".rstrip(".") for visit in visits for t in visit.tensors if "embed" not in visit.path
    }


def accepted_mask(model: Any, tokens: int, **inputs: Any) -> Any:
    """The first form of a mask with nothing masked that the model runs with."""
    import torch

    masks = [
        torch.zeros(1, 1, tokens, tokens, dtype=torch.bfloat16, device="meta"),
        torch.ones(1, tokens, device="meta"),
    ]
    for mask in masks:
        with torch.no_grad(), suppress(Exception):
            model(**inputs, attention_mask=mask, use_cache=False)
            return mask
    return None


@pytest.mark.parametrize("model_type", one_of_each_file().values())
def test_passes_are_those_of_autograd(model_type: str) -> None:
    import torch

    fields: dict[str, Any] = shallow(ESTIMATORS[model_type].schema, build_with(model_type))
    tree, model = describe(fields), build_real_model(*read_config(fields)).train()
    inner, recurrent = inner_parameters(tree), is_recurrent(tree)
    learning = few([name for name, _ in model.named_parameters() if name in inner])
    tokens = 12 if recurrent else 260  # longer than a block of compressed keys
    ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    positions = torch.arange(tokens, device="meta").unsqueeze(0)
    mask = accepted_mask(model, tokens, input_ids=ids, position_ids=positions)
    model = learn(model, learning.__contains__)
    found = seen(model, recurrent, sums=reads_streams(tree), input_ids=ids, position_ids=positions, attention_mask=mask)
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
