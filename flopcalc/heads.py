"""Heads in place of a language model's: a config's `architectures` names the class that it builds.

Reward and value models of RL trainers put a classifier on a decoder: transformers'
`...ForSequenceClassification` and `...ForTokenClassification`, one matrix `score` that reads every token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopcalc.config import class_name
from flopcalc.errors import InvalidConfig, UnsupportedModel
from flopcalc.tree import Linear, Module

__all__ = ["CLASSIFIERS", "with_named_head"]

CLASSIFIERS = ("score", "classifier")
"""What the matrix of a classifier is called."""

_SEQUENCE, _TOKEN = "ForSequenceClassification", "ForTokenClassification"
_NAMED_CLASSIFIER = {
    _SEQUENCE: {"ctrl"},
    _TOKEN: {"bloom", "falcon", "gpt-sw3", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "mpt"},
}
"""Types whose matrix is called `classifier`, not `score`."""
_WITH_ENCODER = {"bart", "bigbird_pegasus", "mbart", "mvp", "plbart"}
"""Types whose classifier stands on an encoder and a decoder."""


def with_named_head(tree: Module, model_type: str, fields: Mapping[str, Any]) -> Module:
    """The tree of a causal LM with the classifier that `architectures` names; as it is without one.

    Raises UnsupportedModel for types whose classifier is another than a matrix in the head's place.
    """
    name = class_name(fields) or ""
    kind = next((ending for ending in _NAMED_CLASSIFIER if name.endswith(ending)), None)
    if kind is None:
        return tree
    match tree.children:
        case ((prefix, Module() as body), ("lm_head", Linear() as head)) if model_type not in _WITH_ENCODER:
            bias = kind == _TOKEN and model_type != "qwen3_asr"
            called = "classifier" if model_type in _NAMED_CLASSIFIER[kind] else "score"
            return Module(**{prefix: body, called: Linear(head.in_features, _num_labels(fields), bias, kind="head")})
    raise UnsupportedModel(
        f"{model_type} config: architectures: found {name!r}, whose classifier is not counted; expected a class with "
        f"the head of a language model. Leave architectures out to count that, or register a type of your own"
    )


def _num_labels(fields: Mapping[str, Any]) -> int:
    """As transformers has it: of `id2label`, or `num_labels`, or 2."""
    labels = fields.get("id2label")
    number = len(labels) if isinstance(labels, Mapping) else fields.get("num_labels", 2)
    if type(number) is not int or number < 1:
        raise InvalidConfig(f"num_labels: found {number!r}, expected a whole number above zero")
    return number
