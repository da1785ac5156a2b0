"""Every field of every schema has the name and, once derived, the value of the transformers config
attribute: for the bare default config and for every bundled file, nested configs included."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flopcalc import ESTIMATORS
from flopcalc.config import Schema, read_config
from flopcalc.facts import folder, real_models
from flopcalc.survey import build_with, no_real_model

PUBLISHED_AS = real_models()["published_as"]

LEFT_TO_THE_MODEL = {
    "head_dim": lambda c: c.hidden_size // c.num_attention_heads,
    "num_key_value_heads": lambda c: c.num_attention_heads,
}
"""Fields that a config class may lack or leave None, and what the modelling code then takes."""


def plain(value: Any) -> Any:
    """Tuples as lists, at any depth."""
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def differences(ours: Schema, theirs: Any, path: str = "") -> Iterator[str]:
    """One line for each field of the schema that is not the attribute of the transformers config."""
    for name, field in type(ours).model_fields.items():
        if field.exclude:  # a legacy key, which the class turns into other fields and forgets
            continue
        if path and name == "tie_word_embeddings":
            continue  # the whole config's own decides
        mine = getattr(ours, name)
        real = vars(theirs)[name] if name in vars(theirs) else getattr(theirs, name, None)
        if isinstance(mine, Schema):
            yield from differences(mine, real, f"{path}{name}.")
            continue
        if real is None and mine is not None and name in LEFT_TO_THE_MODEL:
            real = LEFT_TO_THE_MODEL[name](theirs)
        elif name not in vars(theirs) and not hasattr(theirs, name):  # some raise for what layers may override
            yield f"{path}{name}: ours {mine!r}, transformers has no such attribute"
            continue
        if mine != plain(real):
            yield f"{path}{name}: ours {mine!r}, transformers {real!r}"


def assert_same(fields: dict[str, Any]) -> None:
    from transformers import AutoConfig

    model_type, fields = read_config(fields)
    schema = ESTIMATORS[model_type].schema
    fields = schema.renamed(fields)
    kept = {key: value for key, value in fields.items() if key not in ("model_type", "auto_map", "quantization_config")}
    theirs = AutoConfig.for_model(PUBLISHED_AS.get(model_type, model_type), **kept)
    if getattr(theirs, "is_heterogeneous", False):  # else it asks which layer's value is meant
        theirs.allow_global_per_layer_attribute_access = True
    found = list(differences(schema.read(model_type, fields), theirs))
    assert not found, "\n".join(found)
    # the live object, whose legacy keys are gone and whose aliases are resolved, reads the same
    assert not list(differences(schema.read(model_type, read_config(theirs)[1]), theirs))


TYPES = [model_type for model_type in ESTIMATORS if model_type not in no_real_model()]
FILES = [path for path in sorted(folder("registry").glob("*/*__*.json")) if path.parent.name in TYPES]


@pytest.mark.parametrize("model_type", TYPES)
def test_defaults_are_those_of_transformers(model_type: str) -> None:
    if model_type in PUBLISHED_AS:
        pytest.skip(f"its defaults are those of {PUBLISHED_AS[model_type]}")
    assert_same(build_with(model_type))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_published_config_is_read_as_transformers_reads_it(path: Path) -> None:
    assert_same(json.loads(path.read_text()))
