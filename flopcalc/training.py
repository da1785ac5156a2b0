"""What is trained, and where gradients flow.

A leaf's backward passes follow from two questions. Is a tensor of it trained? Then it has a weight
gradient. Is anything upstream of its input trained? Then it has an input gradient. LoRA, frozen
towers, frozen layers and full training are all this one rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from flopcalc.errors import InvalidOption
from flopcalc.tree import Attention, Module, Node, Tensor, WeightLeaf

__all__ = ["Adapter", "Gradient", "Plan", "Training", "gradients", "plan"]


class Training(BaseModel):
    """What learns in a training step.

    Args:
        trained: patterns of module or parameter names that learn; None for all.
        frozen: patterns of names that do not learn, taken out of `trained`.

    A pattern is a name or a glob (`*` crosses dots), and covers everything under it:
    `model.visual`, `model.layers.[0-3]`, `*.mlp`. One that matches nothing is an InvalidOption.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    trained: tuple[str, ...] | None = None
    frozen: tuple[str, ...] = ()


class Adapter(NamedTuple):
    """A low-rank pair on a matrix: A (in -> rank), B (rank -> out), both trained."""

    rank: int
    in_features: int
    out_features: int


class Gradient(NamedTuple):
    """The backward passes of a leaf: does its input need a gradient; which of its tensors learn
    (by tensor name); for attention, which of query, key and value need one."""

    input: bool
    trained: frozenset[str] = frozenset()
    query: bool = True
    key: bool = True
    value: bool = True


class Plan(NamedTuple):
    """A `Training` resolved on a tree: the gradient of every leaf and the adapters, by path."""

    gradients: Mapping[str, Gradient]
    adapters: Mapping[str, Adapter]


def plan(tree: Node, training: Training) -> Plan:
    """Resolve patterns against a tree. Raises InvalidOption for a pattern that matches nothing."""
    names = [name for name, _ in tree.parameters()]
    chosen = set(names) if training.trained is None else _matching("trained", training.trained, names)
    chosen -= _matching("frozen", training.frozen, names)
    return Plan(gradients(tree, chosen.__contains__), {})


def _matching(field: str, patterns: tuple[str, ...], names: list[str]) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        matched = {name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")}
        if not matched:
            raise InvalidOption(
                f"Training.{field}: found pattern {pattern!r}, which matches no parameter; "
                f"expected module or parameter names such as {names[0]!r} (`flopcalc params --table` lists them)"
            )
        found |= matched
    return found


def gradients(
    tree: Node, trained: Callable[[str], bool], adapters: Mapping[str, Adapter] | None = None
) -> dict[str, Gradient]:
    """The gradient of every leaf, by path.

    Args:
        trained: whether the parameter of that full name learns.
        adapters: by path of the adapted leaf.
    """
    found: dict[str, Gradient] = {}
    _flow(tree, "", False, "text", trained, adapters or {}, found)
    return found


def _flow(
    node: Node,
    path: str,
    fed: bool,
    source: str,
    trained: Callable[[str], bool],
    adapters: Mapping[str, Adapter],
    found: dict[str, Gradient],
) -> bool:
    """Whether the output of `node` carries a gradient, given whether its input (`fed`) does."""
    if isinstance(node, WeightLeaf):
        learns = frozenset(tensor.name for tensor in node.tensors() if trained(_full_name(path, tensor)))
        found[path] = Gradient(fed, learns)
        return fed or bool(learns) or path in adapters
    if not isinstance(node, Module):
        found[path] = Gradient(fed, frozenset(), fed, fed, fed)
        return fed
    if node.stream is not None and node.stream.source != source:
        source, fed = node.stream.source, False  # pixels and audio frames carry no gradient
    carried = fed
    out: dict[str, bool] = {}
    for name, child in node.children:
        child_path = f"{path}.{name}" if path else name
        into = fed if name in node.reads_input else carried
        out[name] = _flow(child, child_path, into, source, trained, adapters, found)
        if isinstance(child, Attention):
            operands = [fed or any(out[part] for part in out if _feeds(part, operand)) for operand in "qkv"]
            found[child_path] = Gradient(carried, frozenset(), *operands)
        carried = carried or out[name]
    return carried


def _full_name(path: str, tensor: Tensor) -> str:
    return tensor.tied_to or ".".join(filter(None, (path, tensor.name)))


def _feeds(part: str, operand: str) -> bool:
    """Whether a sibling of an attention core leads to its query, key or value, by the letters that
    its name starts with: q_proj, k_norm, kv_b_proj, qkv_proj."""
    return operand in part.partition("_")[0]
