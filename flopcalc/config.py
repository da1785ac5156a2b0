"""Reading a config in any form, and the base class of the schemas.

A schema is a pydantic model with the field names and defaults of the transformers config class of
the same model_type, only the fields that matter to shape. It reads a dict and a live config object
alike and takes older spellings as aliases.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from flopcalc import facts
from flopcalc.errors import FlopcalcError, InvalidConfig

__all__ = ["Count", "Repeats", "Schema", "Size", "aliases", "legacy", "read_config"]

_LARGEST_FILE_BYTES = 32 * 2**20
_MOST_LAYERS = 100_000
_DEPTHS = ("layer", "depth", "dense_replace")

Size = Annotated[int, Field(gt=0, lt=2**40)]
"""A dimension: a whole number above zero."""
Count = Annotated[int, Field(ge=0, lt=2**40)]
"""A number of things, possibly none."""
Repeats = Annotated[int, Field(gt=0, le=1000)]
"""How often the model repeats a part that is then listed one by one."""


def aliases(*names: str, default: Any = ...) -> Any:
    """A field that is read under any of these names; the first that the config carries wins."""
    return Field(default, validation_alias=AliasChoices(*names))


def legacy(default: Any = None) -> Any:
    """A key of older files that the transformers class turns into other fields and then forgets."""
    return Field(default, exclude=True)


class Schema(BaseModel):
    """Base of all schemas. Numbers are strict (no strings, no fractions); unknown keys are ignored,
    since published configs carry stray ones."""

    model_config = ConfigDict(strict=True, extra="ignore", validate_by_name=True, defer_build=True, allow_inf_nan=False)

    _read_as: str = PrivateAttr("")

    @property
    def read_as(self) -> str:
        """The model_type as which `read` made this instance."""
        return self._read_as

    def derive(self) -> None:
        """Fill in what the transformers class derives from other fields; a subclass calls
        `super().derive()` first. A contradiction is a ValueError."""

    @model_validator(mode="after")
    def _derive(self) -> Schema:
        for name, value in self:  # before anything is built layer by layer
            depth = any(word in name for word in _DEPTHS) and "per_layer" not in name
            if depth and isinstance(value, int) and value > _MOST_LAYERS:
                raise ValueError(f"{name}: found {value}, expected at most {_MOST_LAYERS} layers")
        self.derive()
        return self

    @classmethod
    def renamed(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields under the names of the transformers class, where published files have others that it
        does not read."""
        return fields

    @classmethod
    def read(cls, model_type: str, fields: Mapping[str, Any], place: str = "") -> Any:
        """An instance from a config's fields, nested ones being at a `place` of the whole. Raises
        InvalidConfig naming the field."""
        try:
            schema = cls.model_validate(fields)
            schema._read_as = model_type
            return schema
        except ValidationError as error:
            raise InvalidConfig(_explain(f"{model_type} {place}".strip(), error)) from None


def _explain(model_type: str, error: ValidationError) -> str:
    problems = []
    for problem in error.errors(include_url=False):
        place = ".".join(map(str, problem["loc"]))
        if problem["type"] == "value_error":  # a ValueError of derive(): it names the field itself
            problems.append(f"{place}.{problem['ctx']['error']}" if place else str(problem["ctx"]["error"]))
        else:
            found = repr(problem["input"])
            found = found if len(found) < 80 else found[:77] + "..."
            problems.append(f"{place}: found {found}, expected: {problem['msg']}")
    return f"{model_type} config: " + "; ".join(problems) + ". Correct the config, or pass the model's own."


def read_config(config: Any) -> tuple[str, dict[str, Any]]:
    """(model_type, fields) of a config in any form.

    Args:
        config: a mapping, a transformers config object (read as it is, never re-loaded), a path to
            config.json or its folder, the name of a bundled model, or a hub id (config.json alone
            is fetched; no remote code is run).

    Raises InvalidConfig.
    """
    if isinstance(config, (str, os.PathLike)):
        return read_config(_load(config))
    if isinstance(config, Mapping):
        fields, model_type = _plain(config), config.get("model_type")
    elif isinstance(getattr(config, "model_type", None), str) and hasattr(config, "__dict__"):
        fields, model_type = _plain(vars(config)), config.model_type
    else:
        raise InvalidConfig(
            f"config: found {type(config).__name__}, expected a dict, a transformers config, a path or a name"
        )
    if model_type is None:  # some files leave it to their class
        model_type = facts.types_of_classes().get(class_name(fields) or "")
    if not isinstance(model_type, str) or not model_type:
        name = class_name(fields)
        raise InvalidConfig(
            f"config: field model_type: found {model_type!r}, expected a string such as 'llama'; "
            f"add {f'that of {name}' if name else 'it'} to the config"
        )
    return model_type, fields


def class_name(fields: Mapping[str, Any]) -> str | None:
    """The model class that a config names, where it is one."""
    match fields.get("architectures"):
        case [str(name)]:
            return name
    return None


def _plain(value: Any) -> Any:
    """Mappings, sequences and nested config objects as dicts and lists, at any depth."""
    if type(value) in (int, float, str, bool, type(None)):
        return value
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "to_dict") and hasattr(value, "__dict__"):
        return {"model_type": getattr(value, "model_type", None), **_plain(vars(value))}
    return value


def _load(source: str | os.PathLike[str]) -> Any:
    """The parsed config.json behind a path, a bundled name or a hub id, in that order."""
    path = Path(source).expanduser()
    try:
        if not str(source):
            raise InvalidConfig(
                "config: found an empty name, expected a path to config.json, its folder, or a model name"
            )
        if path.is_dir():
            path = path / "config.json"
            if not path.is_file():
                raise InvalidConfig(
                    f"{source}: found a folder without config.json; pass the folder of a model, or its config.json"
                )
        if not path.is_file() and str(source) in facts.not_counted():
            return {"model_type": str(source)}  # whoever describes it says why not
        if not path.is_file():
            path = facts.find_bundled(str(source)) or _fetch(str(source))
        size = path.stat().st_size
        if size > _LARGEST_FILE_BYTES:
            raise InvalidConfig(f"{source}: found {size} bytes, far too large for a config.json")
        parsed = json.loads(path.read_text(encoding="utf-8-sig"))
    except FlopcalcError:
        raise
    except (OSError, ValueError, RecursionError) as error:  # ValueError: JSON, UTF-8, a null byte in a path
        raise InvalidConfig(f"{source}: not a readable config.json: {error}") from None
    if not isinstance(parsed, dict):
        raise InvalidConfig(f"{source}: found a JSON {type(parsed).__name__}, expected an object with a model_type")
    return parsed


def _fetch(name: str) -> Path:
    """config.json of a hub id, through huggingface_hub and its cache."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.endswith(".json"):
        raise InvalidConfig(f"{name}: no such file; expected a path to config.json, its folder, or a model name")
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            get_hf_file_metadata(hf_hub_url(name, "config.json"))  # out of reach? says so without retries
        return Path(hf_hub_download(name, "config.json"))
    except Exception as error:  # of the hub, of whichever HTTP client it uses, of the network
        near = _nearest_bundled(name)
        raise InvalidConfig(
            f"{name}: not a file, not a bundled model ({near}`flopcalc models` lists them), and its config.json "
            f"could not be fetched from the hub: {(str(error).strip() or repr(error)).splitlines()[0]}"
        ) from None


def _nearest_bundled(name: str) -> str:
    """Words that name bundled models spelt alike, with or without their owner."""
    bundled = {model.lower(): model for model in facts.bundled_configs()}
    bundled |= {model.rpartition("/")[2]: full for model, full in bundled.items()}
    near = [bundled[match] for match in difflib.get_close_matches(name.lower(), bundled, n=3, cutoff=0.7)]
    return f"nearest: {', '.join(dict.fromkeys(near))}; " if near else ""
