"""Every causal LM of the installed transformers against our estimators: the drift alarm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any, NamedTuple, get_args

from flopcalc import facts
from flopcalc.config import Schema
from flopcalc.errors import FlopcalcError
from flopcalc.estimators import ESTIMATORS
from flopcalc.verify import Verification, verify

__all__ = ["Finding", "build_with", "causal_types", "no_real_model", "not_run", "shallow", "survey"]

_AT_LEAST_LAYERS = 5
_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_decoder_layers")


class Finding(NamedTuple):
    """One type: does its table and its work equal the real model's; if not, why."""

    model_type: str
    supported: bool
    parameters_equal: bool | None = None
    flops_equal: bool | None = None
    reason: str = ""

    @property
    def fine(self) -> bool:
        """Equal in all that can be compared, the rest being known."""
        known = self.model_type in not_run() or self.model_type in no_real_model()
        return self.supported and self.parameters_equal is not False and (self.flops_equal is True or known)


def build_with(model_type: str) -> dict[str, Any]:
    """The default config of a type with the smallest change that lets transformers build it."""
    return {"model_type": model_type, **facts.real_models()["build_with"].get(model_type, {})}


def not_run() -> Mapping[str, str]:
    """Types whose forward pass cannot run on meta, and why."""
    return facts.real_models()["not_run"]


def no_real_model() -> Mapping[str, str]:
    """Types that transformers cannot build, and what their structure follows instead."""
    known = facts.real_models()
    lacking = {type_: package for type_, package in known["needs"].items() if find_spec(package) is None}
    return known["no_real_model"] | {
        model_type: f"transformers builds it with {package}, which is not installed"
        for model_type, package in lacking.items()
    }


def causal_types() -> tuple[str, ...]:
    """The types that the installed transformers maps to a causal LM class, sorted."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return tuple(sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))


def survey(model_types: Iterable[str], *, jobs: int = 1) -> Iterator[Finding]:
    """Verify the default config of each type, with few layers; in `jobs` processes, where more than one."""
    if jobs == 1:
        yield from map(examine, model_types)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(examine, model_types, chunksize=4)


def examine(model_type: str) -> Finding:
    """What `survey` finds of one type."""
    if model_type not in ESTIMATORS:
        return Finding(model_type, False, reason="no estimator")
    if model_type in no_real_model():
        return Finding(model_type, True, reason=no_real_model()[model_type])
    try:
        return _finding(verify(shallow(ESTIMATORS[model_type].schema, build_with(model_type))))
    except FlopcalcError as error:
        return Finding(model_type, True, False, None, str(error))


def _finding(result: Verification) -> Finding:
    ran = result.not_run is None
    problems = [f"lacks {name} {list(shape)}" for name, shape in result.missing[:2]]
    problems += [f"has {name} {list(shape)} too many" for name, shape in result.surplus[:2]]
    problems += [f"other FLOPs at {seen.tokens} tokens" for seen in result.flops if not seen.equal]
    if not ran:
        problems.append(not_run().get(result.model_type) or f"does not run: {result.not_run}")
    equal = all(seen.equal for seen in result.flops) if ran else None
    return Finding(result.model_type, True, result.parameters_equal, equal, "; ".join(problems))


def shallow(schema: type[Schema], fields: dict[str, Any]) -> dict[str, Any]:
    """The config cut to its first layers, as many as show each kind of layer; in nested configs too."""
    cut = dict(fields)
    for name, inner in nested(schema, fields).items():
        cut[name] = shallow(inner, cut.get(name) or {})
    try:
        read = schema.read("shallow", cut)
    except FlopcalcError:
        return fields
    count = next((name for name in _LAYER_COUNTS if getattr(read, name, None)), None)
    if count is None:
        return cut
    layers = getattr(read, count)
    lists = {name: value for name, value in read if isinstance(value, list) and len(value) == layers}
    last_new = [value.index(kind) + 1 for value in lists.values() for kind in value]
    keep = max([_AT_LEAST_LAYERS, *last_new])
    if keep >= layers:
        return cut
    aliases = getattr(schema.model_fields[count].validation_alias, "choices", ())
    named_once = {name: value for name, value in cut.items() if name not in aliases}
    shorter = named_once | {count: keep} | {name: value[:keep] for name, value in lists.items()}
    try:
        schema.read("shallow", shorter)
    except FlopcalcError:  # the depth follows from another field too
        return cut
    return shorter


def nested(schema: type[Schema], fields: Mapping[str, Any]) -> dict[str, type[Schema]]:
    """Fields of a schema that hold a config of their own; the type of one may stand in `fields`."""
    found = {}
    for name, field in schema.model_fields.items():
        for annotation in (field.annotation, *get_args(field.annotation)):
            if isinstance(annotation, type) and issubclass(annotation, Schema):
                found[name] = annotation
    if Schema in found.values():
        read = schema.read("nested", fields)
        found = {name: type(getattr(read, name)) for name in found}
    return found
