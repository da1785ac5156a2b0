"""What torch's operator counter sees of a forward and a backward pass of a small model on the CPU, with
parts of it frozen or adapted by peft."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from flopcalc import FlopCounter, Training
from flopcalc.tree import MATMUL_KINDS, DeltaRule, LinearAttention, Mamba, Mamba2, Node, StreamMix, walk
from flopcalc.verify import EAGER

AUTOGRAD = EAGER.changed(name="eager, autograd", input_gradient="autograd")
"""The passes of `exact`, on the pairs that eager attention multiplies."""


class Flops(NamedTuple):
    weights: int
    mixers: int | None
    """None where the model runs a recurrence, whose chunked form in plain torch cannot be judged."""


def build(fields: dict[str, Any]) -> Any:
    """A causal LM (or the whole model of a type with towers) with random weights on the CPU."""
    import torch
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto as auto

    fields = dict(fields)
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    whole = config.model_type in auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES
    factory = auto.AutoModelForMultimodalLM if whole else auto.AutoModelForCausalLM
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return factory.from_config(config, dtype=torch.bfloat16, attn_implementation="eager").train()


def learn(model: Any, learns: Callable[[str], bool]) -> Any:
    """The model with only those parameters learning whose names say so."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(learns(name))
    return model


def under(*patterns: str) -> Callable[[str], bool]:
    """Whether a name is one of these patterns or under it, as `Training` reads them."""
    return lambda name: any(fnmatchcase(name, p) or fnmatchcase(name, f"{p}.*") for p in patterns)


def seen(model: Any, recurrent: bool, *, sums: bool = False, **inputs: Any) -> Flops:
    """FLOPs of one forward and backward pass; `sums` says whether weighted sums written as a product count."""
    import torch
    from torch.fx.experimental import _config as meta
    from torch.utils.flop_counter import FlopCounterMode

    def grouped_mm(left: Any, right: Any, *_: Any, **__: Any) -> int:
        # rows of all experts by their matrices; or, for the weight gradient, columns by rows
        return 2 * left[0] * left[1] * right[-1]

    def bmm(left: Any, right: Any, *_: Any, **__: Any) -> int:
        one_row = left[1] == 1  # a weighted sum, not a product of matrices
        return 0 if one_row and not sums else 2 * left[0] * left[1] * left[2] * right[2]

    formulas = {torch.ops.aten._grouped_mm: grouped_mm, torch.ops.aten.bmm: bmm}
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    nothing_masked = meta.patch(meta_nonzero_assume_all_nonzero=True)  # for indexers that loop over visible keys
    with counter, nothing_masked, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(**inputs, use_cache=False).logits.float().sum().backward()
    counts = counter.get_flop_counts()
    flops = {str(operator): count for operator, count in counts["Global"].items()}
    for module, operators in counts.items():
        if "rotary" in module.rpartition(".")[2]:  # tables of angles, built by a product
            for operator, count in operators.items():
                flops[str(operator)] -= count
    mixers = sum(count for operator, count in flops.items() if "bmm" in operator)
    weights = sum(count for operator, count in flops.items() if "bmm" not in operator)
    depthwise = all(module.groups > 1 for module in model.modules() if hasattr(module, "groups"))
    if recurrent or depthwise:  # convolutions over time, which are no products of matrices
        weights -= sum(count for operator, count in flops.items() if "convolution" in operator)
    return Flops(weights, None if recurrent else mixers)


def counted(tree: Node, training: Training, seq_lens: list[int], images: Any = None) -> Flops:
    """The same by us."""
    kinds = FlopCounter(tree, AUTOGRAD, training=training).breakdown(seq_lens, images).by_kind()
    weights = sum(flops for kind, flops in kinds.items() if kind in MATMUL_KINDS)
    return Flops(weights, None if is_recurrent(tree) else sum(kinds.values()) - weights)


def is_recurrent(tree: Node) -> bool:
    return any(isinstance(visit.leaf, (DeltaRule, LinearAttention, Mamba, Mamba2)) for visit in walk(tree))


def reads_streams(tree: Node) -> bool:
    """Whether queries, often a single one, read vectors out of a token's residual streams."""
    return any(isinstance(visit.leaf, StreamMix) and visit.leaf.rows is not None for visit in walk(tree))


def linear_names(model: Any) -> Iterator[str]:
    """Last parts of the names of linear layers, the head excepted."""
    import torch
    from transformers.pytorch_utils import Conv1D

    for name, module in model.named_modules():
        if isinstance(module, (torch.nn.Linear, Conv1D)) and module is not model.get_output_embeddings():
            yield name.rpartition(".")[2]
