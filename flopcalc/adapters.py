"""The adapters that a `Lora` puts on a tree, as peft puts them on the model.

The order of things is that of peft 0.21 (`BaseTuner.inject_adapter`, `_inject_parameters`,
`_mark_only_adapters_as_trainable`). Where peft only warns that a part of the config matches nothing,
this raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flopcalc.errors import InvalidOption
from flopcalc.lora import Lora, ends_with, named
from flopcalc.lora_defaults import DEFAULT_TARGETS, FUSED, MAMBA_TYPES
from flopcalc.lora_fused import retarget
from flopcalc.tree import Embedding, Linear, Module, Node, Tensor, Weight, WeightLeaf, walk

__all__ = ["Adapter", "Placement", "place"]


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
    biases: frozenset[str]
    """Names of base parameters that learn beside the adapters."""
    saved: frozenset[str]
    """Names of parameters that learn as copies of their own (`modules_to_save`), tied or not."""


def place(lora: Lora, tree: Node) -> Placement:
    """Put adapters on a tree as peft does on the model.

    Raises InvalidOption for targets, exclusions, rank patterns or modules to save that match
    nothing, and for a target that peft cannot adapt.
    """
    given, lora = lora, as_peft_reads_it(lora, tree)
    found = dict(modules(tree))
    targeted = [name for name in found if lora.targets(name) and not lora.excludes(name)]
    adapters = {name: _on_module(lora, tree, name, found[name]) for name in targeted}
    targeted_parameters = list(_target_parameters(lora, tree))
    transposed = {
        visit.path for visit in walk(tree, expand=True) if isinstance(visit.leaf, Weight) and visit.leaf.transposed
    }
    for leaf, owner, tensor in targeted_parameters:
        name = _join(leaf, tensor.name)
        if owner in adapters:
            raise InvalidOption(f"Lora: {name} is a target parameter of a target module; expected one of the two")
        adapters[leaf] = _on_parameter(lora, name, tensor, transposed=leaf in transposed)
    _check_matches(given, list(found), targeted, [_join(leaf, tensor.name) for leaf, _, tensor in targeted_parameters])
    owners = {*targeted, *(owner for _, owner, _ in targeted_parameters)}
    return Placement(adapters, frozenset(_biases(lora, tree, owners)), frozenset(_saved(lora, tree)))


def modules(tree: Node) -> Iterator[tuple[str, Module | WeightLeaf]]:
    """(full name, node) of everything that is an `nn.Module` in the real model, the root excepted."""
    if isinstance(tree, Module):
        for name, child in tree.children:
            if isinstance(child, (Module, WeightLeaf)) and not isinstance(child, Weight):
                yield name, child
                yield from ((f"{name}.{inner}", node) for inner, node in modules(child))


def parameters(tree: Node) -> Iterator[tuple[str, str, Tensor]]:
    """(path of the leaf, path of the module that owns it, tensor) of every parameter, tied ones too."""
    for name, node in [("", tree), *modules(tree)]:
        if isinstance(node, WeightLeaf):
            yield from ((name, name, tensor) for tensor in node.tensors())
        elif isinstance(node, Module):
            bare = [(child, leaf) for child, leaf in node.children if isinstance(leaf, Weight)]
            yield from ((_join(name, child), name, tensor) for child, leaf in bare for tensor in leaf.tensors())


def _join(*parts: str) -> str:
    return ".".join(filter(None, parts))


def _on_module(lora: Lora, tree: Node, name: str, node: Node) -> Adapter:
    rank = lora.rank(name)
    leaf = name.rpartition(".")[2]
    if leaf in ("out_proj", "conv1d") and getattr(tree, "model_type", None) in MAMBA_TYPES:
        raise InvalidOption(f"Lora: {name}: peft refuses to adapt out_proj and conv1d of Mamba models; exclude them")
    match node:
        case Linear(in_features, out_features):
            bias = (Tensor("lora_B.bias", (out_features,), "bias"),) if lora.lora_bias else ()
            magnitude = (Tensor("lora_magnitude_vector", (out_features,), "vector"),) if lora.use_dora else ()
            return Adapter(
                Tensor("lora_A.weight", (rank, in_features), "adapter"),
                Tensor("lora_B.weight", (out_features, rank), "adapter"),
                bias + magnitude,
            )
        case Embedding(num_embeddings, dim) if not (lora.lora_bias or lora.use_dora):
            return Adapter(
                Tensor("lora_embedding_A", (rank, num_embeddings), "lookup"),
                Tensor("lora_embedding_B", (dim, rank), "adapter"),
            )
    raise InvalidOption(
        f"Lora: {name} is matched by target_modules, but a {type(node).__name__} takes no such adapter; "
        f"expected linear layers and embeddings"
    )


def _on_parameter(lora: Lora, name: str, tensor: Tensor, *, transposed: bool) -> Adapter:
    """An adapter on a matrix, or one on each matrix of a stack."""
    if len(tensor.shape) not in (2, 3) or lora.lora_bias or lora.use_dora:
        raise InvalidOption(
            f"Lora: {name} is matched by target_parameters: found shape {tensor.shape}, expected 2 or 3 dimensions, "
            f"without lora_bias and use_dora"
        )
    *stacked, rows, columns = tensor.shape
    if transposed:
        rows, columns = columns, rows
    total_rank = lora.rank(name) * (stacked[0] if stacked else 1)
    return Adapter(
        Tensor(_join(tensor.name, "lora_A.weight"), (total_rank, columns), "adapter"),
        Tensor(_join(tensor.name, "lora_B.weight"), (rows, total_rank), "adapter"),
    )


def _target_parameters(lora: Lora, tree: Node) -> Iterator[tuple[str, str, Tensor]]:
    for leaf, owner, tensor in parameters(tree):
        if lora.target_parameters and named(_join(leaf, tensor.name), lora.target_parameters):
            yield leaf, owner, tensor


def _biases(lora: Lora, tree: Node, owners: set[str]) -> Iterator[str]:
    for leaf, owner, tensor in parameters(tree):
        name = _join(leaf, tensor.name)
        if name.rpartition(".")[2] == "bias" and (lora.bias == "all" or (lora.bias == "lora_only" and owner in owners)):
            yield name


def _saved(lora: Lora, tree: Node) -> Iterator[str]:
    saved = tuple(f"{name}." for name, _ in modules(tree) if lora.saves(name))
    for leaf, _, tensor in parameters(tree):
        if (name := _join(leaf, tensor.name)).startswith(saved):
            yield name


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


def as_peft_reads_it(lora: Lora, tree: Node) -> Lora:
    """The same with what peft fills in before it matches: experts under the names of today,
    "all-linear" spelled out, and the default targets of the model type."""
    model_type = getattr(tree, "model_type", None) or ""
    all_linear = lora.target_modules is not None and str(lora.target_modules).lower() == "all-linear"
    linear = tuple(name for name, node in modules(tree) if isinstance(node, Linear) and node.kind != "head")
    if model_type in FUSED:
        names = [name for name, _ in modules(tree)]
        weights = [_join(leaf, tensor.name) for leaf, _, tensor in parameters(tree)]
        return retarget(lora, FUSED[model_type], names, weights, linear if all_linear else ())
    if lora.target_modules is None and model_type in DEFAULT_TARGETS:
        return lora.model_copy(update={"target_modules": DEFAULT_TARGETS[model_type]})
    return lora.model_copy(update={"target_modules": linear}) if all_linear else lora
