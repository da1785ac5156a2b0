"""The registry of estimators, keyed by Hugging Face `model_type`.

`architectures/` holds one file a family; a file is named like the longest model_type prefix that it
serves (`qwen3_moe` lives in `qwen3_moe.py`, `qwen3.py` or `qwen.py`), and is imported when a type
of it is first asked for.

Models with towers are made of parts, whose nested configs say their own model_type: towers, which are
registered as parts, and language models, of which every causal LM is one, its head left out.
"""

from __future__ import annotations

import difflib
import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from flopcalc import architectures, facts
from flopcalc.config import Schema, read_config
from flopcalc.errors import InvalidOption, UnsupportedModel
from flopcalc.heads import with_named_head
from flopcalc.mtp import knows_depths, with_mtp
from flopcalc.tree import Module

__all__ = [
    "ESTIMATORS", "Estimator", "describe", "find_part", "is_supported", "register", "register_part",
    "supported_model_types",
]  # fmt: skip


class Estimator:
    """How the tree of one model_type follows from its config: `schema` reads the fields, `build`
    states the structure. Calling it does both."""

    def __init__(self, model_type: str, schema: type[Schema], build: Callable[..., Module]) -> None:
        self.model_type = model_type
        self.schema = schema
        self.build = build

    def __call__(self, fields: Mapping[str, Any], *, mtp: bool | int = False, mtp_head: bool = True) -> Module:
        """The tree of a model with these config fields, see `describe`. Raises InvalidConfig."""
        config = self.schema.read(self.model_type, fields)
        tree = with_named_head(self.build(config), self.model_type, fields).of_type(self.model_type)
        if not mtp:
            return tree
        if not knows_depths(self.model_type):
            supported_model_types()  # imports all, so that the error can name those that do
        return with_mtp(tree, config, fields, mtp, head=mtp_head)

    def __repr__(self) -> str:
        return f"Estimator({self.model_type!r})"


_registered: dict[str, Estimator] = {}
_parts: dict[str, Estimator] = {}


def register(
    model_type: str, schema: type[Schema], *, replace: bool = False
) -> Callable[[Callable[[Any], Module]], Callable[[Any], Module]]:
    """Decorate a function (schema instance -> tree) to serve `model_type`.

    Raises InvalidOption where the type is served already, unless `replace=True`.
    """

    def decorate(build: Callable[[Any], Module]) -> Callable[[Any], Module]:
        served = _registered.get(model_type)
        if served is not None and not replace and served.build.__module__ != build.__module__:
            raise InvalidOption(
                f"register: model_type {model_type!r} is already served by {served.build.__module__}; "
                f"pass replace=True to serve it instead"
            )
        _registered[model_type] = Estimator(model_type, schema, build)
        return build

    return decorate


def register_part(
    model_type: str, schema: type[Schema]
) -> Callable[[Callable[[Any], Module]], Callable[[Any], Module]]:
    """Decorate a function (schema instance -> tree) that describes a part of whole models, such as a
    vision tower, by its own `model_type`."""

    def decorate(build: Callable[[Any], Module]) -> Callable[[Any], Module]:
        _parts[model_type] = Estimator(model_type, schema, build)
        return build

    return decorate


def find_part(model_type: str) -> Estimator:
    """What describes a part of a whole model: as registered, or a causal LM without its head.

    Raises UnsupportedModel.
    """
    causal = _find(model_type)
    if model_type in _parts:
        return _parts[model_type]
    if causal is None:
        raise UnsupportedModel(f"model_type {model_type!r} of a nested config is neither a tower nor a language model")

    def body(c: Any) -> Module:
        [(_, backbone), *_] = causal.build(c).children
        if not isinstance(backbone, Module):
            raise UnsupportedModel(f"model_type {model_type!r} has no backbone that could be part of another model")
        return backbone

    return Estimator(model_type, causal.schema, body)


@cache
def _files() -> frozenset[str]:
    return frozenset(module.name for module in pkgutil.iter_modules(architectures.__path__))


def _find(model_type: str) -> Estimator | None:
    """The estimator of a type, importing the file that is named after it where needed."""
    name = model_type.replace("-", "_")
    while model_type not in _registered and model_type not in _parts and name:
        if name in _files():
            import_module(f"flopcalc.architectures.{name}")
        name = name.rpartition("_")[0]
    if model_type not in _registered and model_type not in _parts:
        _import_by_mention(model_type)
    return _registered.get(model_type)


def _import_by_mention(model_type: str) -> None:
    """Import the files that speak of a type: a family may serve types of quite other names."""
    for path in architectures.__path__:
        for file in sorted(Path(path).glob("*.py")):
            if f'"{model_type}"' in file.read_text(encoding="utf-8"):
                import_module(f"flopcalc.architectures.{file.stem}")


class _Estimators(Mapping[str, Estimator]):
    """model_type -> Estimator; files are imported on demand."""

    def __getitem__(self, model_type: str) -> Estimator:
        estimator = _find(model_type) if isinstance(model_type, str) else None
        if estimator is None:
            raise KeyError(model_type)
        return estimator

    def __iter__(self) -> Iterator[str]:
        for name in _files():
            import_module(f"flopcalc.architectures.{name}")
        return iter(sorted(_registered))

    def __len__(self) -> int:
        return sum(1 for _ in self)


ESTIMATORS: Mapping[str, Estimator] = _Estimators()


def supported_model_types() -> tuple[str, ...]:
    """Every model_type with an estimator, sorted."""
    return tuple(ESTIMATORS)


def is_supported(config_or_model_type: Any) -> bool:
    """Whether a model_type, or a config in any form, has an estimator."""
    if isinstance(config_or_model_type, str) and config_or_model_type in ESTIMATORS:
        return True
    if isinstance(config_or_model_type, str) and "/" not in config_or_model_type:
        return False
    return read_config(config_or_model_type)[0] in ESTIMATORS


def describe(config: Any, *, mtp: bool | int = False, mtp_head: bool = True) -> Module:
    """The tree of a model: its modules, shapes and mixers.

    Args:
        config: in any form that `read_config` takes.
        mtp: the depths of multi-token prediction to describe as well: as many as the config says
            (True), or a number.
        mtp_head: whether each depth ends in a pass through the output head.

    The head is that of a language model, or the classifier that `architectures` names. Warns of the
    config of an encoder and a decoder, of which the decoder alone is counted.

    Raises UnsupportedModel, InvalidConfig, or InvalidOption for a model without such depths.

    >>> describe({"model_type": "llama"}).num_matmul_params()
    6607077376
    """
    model_type, fields = read_config(config)
    estimator = _find(model_type)
    if estimator is None:
        raise UnsupportedModel(
            f"model_type {model_type!r} {_why_not(model_type)}; "
            f"`flopcalc models` lists all that are counted, flopcalc.register() adds one"
        )
    if fields.get("is_encoder_decoder") is True:
        warnings.warn(
            f"{model_type}: a config of an encoder and a decoder, of which the decoder alone is counted, as "
            f"AutoModelForCausalLM builds it",
            UserWarning,
            stacklevel=2,
        )
    return estimator(fields, mtp=mtp, mtp_head=mtp_head)


def _why_not(model_type: str) -> str:
    """Why a type is not counted: the known reason, or no more than the nearest names."""
    if model_type in _parts:
        return "is a part of other models, and counted within them"
    if reason := facts.not_counted().get(model_type):
        return f"is not counted: {reason}"
    nearest = difflib.get_close_matches(model_type, supported_model_types(), n=3, cutoff=0.5)
    return "has no estimator" + (f"; nearest supported: {', '.join(nearest)}" if nearest else "")
