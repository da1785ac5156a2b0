"""The adapters that a `Lora` puts on a tree, as peft puts them on the model.

The order of things is that of peft 0.21 (`BaseTuner.inject_adapter`, `_inject_parameters`,
`_mark_only_adapters_as_trainable`). Where peft only warns that a part of the config matches nothing,
this raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from flopcalc.errors import InvalidOption
from flopcalc.lora import Lora, ends_with, named
from flopcalc.lora_defaults import DEFAULT_TARGETS, FUSED, MAMBA_TYPES
from flopcalc.lora_fused import retarget
from flopcalc.tree import Conv, Embedding, Linear, Module, Node, Tensor, Weight, WeightLeaf, walk

__all__ = ["Adapter", "Placement", "modules", "place"]


class Adapter(NamedTuple):
    """The tensors that LoRA adds beside a matrix, named relative to its leaf: A reads the input of
    the matrix, B the output of A."""

    a: Tensor
    b: Tensor
    others: tuple[Tensor, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.a, self.b, *self.others)


class Placement(NamedTuple):
    """Where a Lora goes on a tree."""

    adapters: Mapping[str, Adapter]
    """By path of the adapted leaf."""
    again: Mapping[str, Adapter]
    """Adapters of modules that run once more, by path of that use."""
    biases: frozenset[str]
    """Names of base parameters that learn beside the adapters."""
    saved: frozenset[str]
    """Names of parameters that learn as copies of their own (`modules_to_save`), tied or not."""


class _Parameter(NamedTuple):
    name: str
    path: str
    """Of its leaf."""
    owner: str
    """The module that holds it."""
    tensor: Tensor
    transposed: bool
    """Whether it is stored (in, out)."""


def place(lora: Lora, tree: Node) -> Placement:
    """Put adapters on a tree as peft does on the model.

    Raises InvalidOption for targets, exclusions, rank patterns or modules to save that match
    nothing, and for a target that peft cannot adapt.
    """
    model_type = getattr(tree, "model_type", None) or ""
    found = dict(modules(tree))
    parameters = list(_parameters([("", tree), *found.items()]))
    given, lora = lora, _as_peft_reads_it(lora, model_type, found, parameters)

    targeted = [name for name in found if lora.targets(name) and not lora.excludes(name)]
    for name in targeted:
        if name.rpartition(".")[2] in ("out_proj", "conv1d") and model_type in MAMBA_TYPES:
            raise InvalidOption(f"Lora: {name}: peft refuses out_proj and conv1d of Mamba models; exclude them")
    adapters = {name: _on_module(lora, name, found[name]) for name in targeted}
    matched = [p for p in parameters if lora.target_parameters and named(p.name, lora.target_parameters)]
    for parameter in matched:
        if parameter.owner in adapters:
            raise InvalidOption(
                f"Lora: {parameter.name} is a target parameter of a target module; expected one of the two"
            )
        adapters[parameter.path] = _on_parameter(lora, parameter)

    _check_matches(given, list(found), targeted, [parameter.name for parameter in matched])
    owners = {*targeted, *(parameter.owner for parameter in matched)}
    saved = tuple(f"{name}." for name in found if lora.saves(name))
    again = {path: adapters[module] for path, module in _runs_again(tree) if module in adapters}
    return Placement(
        adapters,
        again,
        frozenset(p.name for p in parameters if _is_bias(p) and (lora.bias == "all" or p.owner in owners))
        if lora.bias != "none"
        else frozenset(),
        frozenset(p.name for p in parameters if p.name.startswith(saved)),
    )


def modules(tree: Node, path: str = "") -> Iterator[tuple[str, Module | WeightLeaf]]:
    """(full name, node) of everything that is an `nn.Module` in the real model, the root excepted."""
    if isinstance(tree, Module):
        for name, child in tree.children:
            again = isinstance(child, Module) and child.runs_again
            if isinstance(child, (Module, WeightLeaf)) and not (isinstance(child, Weight) or again):
                yield _join(path, name), child
                yield from modules(child, _join(path, name))


def _runs_again(tree: Node) -> Iterator[tuple[str, str]]:
    """(path, module) of each leaf of a module that runs once more there."""
    for visit in walk(tree, expand=True):
        if visit.runs_again and visit.owner is not None:
            yield visit.path, visit.owner


def _parameters(found: Iterable[tuple[str, Node]]) -> Iterator[_Parameter]:
    """Every parameter of some modules, tied ones in each of their places."""
    for owner, node in found:
        leaves = [(owner, node)]
        if isinstance(node, Module):
            leaves = [(_join(owner, name), child) for name, child in node.children if isinstance(child, Weight)]
        for path, leaf in leaves:
            if isinstance(leaf, WeightLeaf):
                transposed = isinstance(leaf, Weight) and leaf.transposed
                for tensor in leaf.tensors():
                    yield _Parameter(_join(path, tensor.name), path, owner, tensor, transposed)


def _join(*parts: str) -> str:
    return ".".join(filter(None, parts))


def _is_bias(parameter: _Parameter) -> bool:
    return parameter.name.rpartition(".")[2] == "bias"


def _on_module(lora: Lora, name: str, node: Node) -> Adapter:
    rank = lora.rank(name)
    plain = not (lora.lora_bias or lora.use_dora)
    match node:
        case Linear(in_features, out_features):
            bias = (Tensor("lora_B.bias", (out_features,), "bias"),) if lora.lora_bias else ()
            magnitude = (Tensor("lora_magnitude_vector", (out_features,), "vector"),) if lora.use_dora else ()
            return Adapter(
                Tensor("lora_A.weight", (rank, in_features), "adapter"),
                Tensor("lora_B.weight", (out_features, rank), "adapter"),
                bias + magnitude,
            )
        case Embedding(num_embeddings, dim) if plain:
            return Adapter(
                Tensor("lora_embedding_A", (rank, num_embeddings), "lookup"),
                Tensor("lora_embedding_B", (dim, rank), "adapter"),
            )
        case Conv(in_channels, out_channels, kernel) if plain:
            return Adapter(
                Tensor("lora_A.weight", (rank, in_channels, *kernel), "adapter"),
                Tensor("lora_B.weight", (out_channels, rank, *(1 for _ in kernel)), "adapter"),
            )
    raise InvalidOption(
        f"Lora: {name} is matched by target_modules, but a {type(node).__name__} takes no such adapter; "
        f"expected linear layers, embeddings and convolutions over all channels"
    )


def _on_parameter(lora: Lora, parameter: _Parameter) -> Adapter:
    """An adapter on a matrix, or one on each matrix of a stack."""
    name, shape = parameter.tensor.name, parameter.tensor.shape
    if len(shape) not in (2, 3) or lora.lora_bias or lora.use_dora:
        raise InvalidOption(
            f"Lora: {parameter.name} is matched by target_parameters: found shape {shape}, expected 2 or 3 "
            f"dimensions, without lora_bias and use_dora"
        )
    *stacked, rows, columns = shape
    if parameter.transposed:
        rows, columns = columns, rows
    rank = lora.rank(parameter.name) * (stacked[0] if stacked else 1)
    return Adapter(
        Tensor(_join(name, "lora_A.weight"), (rank, columns), "adapter"),
        Tensor(_join(name, "lora_B.weight"), (rows, rank), "adapter"),
    )


def _check_matches(lora: Lora, names: list[str], targeted: list[str], targeted_parameters: list[str]) -> None:
    """InvalidOption for a part of the user's own config that matches nothing."""
    adapted = targeted + targeted_parameters
    own_parameters = [name for name in targeted_parameters if named(name, lora.target_parameters or ())]
    checks = [
        ("target_modules", lora.target_modules or (), set(adapted) - set(own_parameters)),  # moved ones count
        ("target_parameters", lora.target_parameters or (), own_parameters),
        ("exclude_modules", lora.exclude_modules or (), [n for n in names if named(n, lora.exclude_modules or ())]),
        *(("rank_pattern", key, [name for name in adapted if ends_with(name, key)]) for key in lora.rank_pattern),
        *(
            ("modules_to_save", key, [name for name in names if name.endswith(key)])
            for key in lora.modules_to_save or ()
        ),
    ]
    for field, value, matched in checks:
        if value and not matched:
            raise InvalidOption(
                f"Lora.{field}: found {value!r}, which matches nothing; expected names such as "
                f"{', '.join(sorted({name.rpartition('.')[2] for name in names if not name[-1].isdigit()}))}"
            )
    if not adapted:
        raise InvalidOption("Lora: neither target_modules nor target_parameters is given; expected one of them")


def _as_peft_reads_it(lora: Lora, model_type: str, found: Mapping[str, Node], parameters: Iterable[_Parameter]) -> Lora:
    """The same with what peft fills in before it matches: experts under the names of today,
    "all-linear" spelled out, and the default targets of the model type."""
    all_linear = isinstance(lora.target_modules, str) and lora.target_modules.lower() == "all-linear"
    linear: tuple[str, ...] = ()
    if all_linear:
        linear = tuple(name for name, node in found.items() if isinstance(node, Linear) and node.kind != "head")
    if model_type in FUSED:
        return retarget(lora, FUSED[model_type], found, [parameter.name for parameter in parameters], linear)
    if lora.target_modules is None and model_type in DEFAULT_TARGETS:
        return lora.model_copy(update={"target_modules": DEFAULT_TARGETS[model_type]})
    return lora.model_copy(update={"target_modules": linear}) if all_linear else lora
