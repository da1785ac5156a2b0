"""Reading the fact folders `registry/` and `hardware/`, the same way from a wheel, an editable
install and a checkout."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["bundled_configs", "find_bundled", "folder", "is_checkout", "not_counted", "real_models", "types_of_classes"]

_PACKAGE = Path(__file__).parent


@cache
def folder(name: str) -> Path:
    """The folder `registry` or `hardware`: inside the package in a wheel, beside it in a checkout."""
    inside = _PACKAGE / "facts_data" / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def is_checkout() -> bool:
    """Whether the facts are those of a checkout (an editable install's too), where they may change."""
    return folder("registry").parent == _PACKAGE.parent


@cache
def bundled_configs() -> dict[str, Path]:
    """Hub id -> config file, for every bundled model, in order of model_type and name."""
    files = sorted(folder("registry").glob("*/*__*.json"), key=lambda file: (file.parent.name, file.stem))
    return {file.stem.replace("__", "/", 1): file for file in files}


@cache
def real_models() -> dict[str, dict[str, Any]]:
    """What must be known to build the real models, by subject and model_type.

    `published_as`: types whose files use another type's fields and code; `build_with`: the smallest
    change that makes a default config buildable; `not_run`: why a forward pass cannot run on meta
    (`file_not_run`: that of one bundled file); `needs`: the package that transformers builds a type with;
    `no_real_model`: what the structure of a type that transformers does not know follows.
    """
    known: dict[str, dict[str, Any]] = json.loads((folder("registry") / "real_models.json").read_text("utf-8"))
    return known


@cache
def not_counted() -> dict[str, str]:
    """model_type -> why it has no estimator, for those of which that is known."""
    reasons = json.loads((folder("registry") / "not_counted.json").read_text("utf-8"))
    return {model_type: reason for reason, model_types in reasons.items() for model_type in model_types}


@cache
def types_of_classes() -> dict[str, str]:
    """Model class -> model_type, for published files that name their class alone."""
    types: dict[str, str] = json.loads((folder("registry") / "types_of_classes.json").read_text("utf-8"))
    return types


def find_bundled(name: str) -> Path | None:
    """The bundled config of that hub id, or None."""
    if name.count("/") != 1:
        return None
    file_name = f"{name.replace('/', '__')}.json"
    return next(iter(folder("registry").glob(f"*/{file_name}")), None) if _plain(file_name) else None


def _plain(file_name: str) -> bool:
    return not any(character in file_name for character in "*?[]\\\0")
