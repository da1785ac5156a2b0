"""Counting a torch module that has no config:

    from flopcalc.integrations.torch import FlopCounter

    with torch.device("meta"):
        counter = FlopCounter(MyModel())
    counter([4096, 300])

The parameters of the built module become a tree, which is counted like every other: a matrix multiplies
every token, a look-up table none, routed experts by their top-k. What attention costs cannot be seen in
parameters; each layer says it by `attention_flops(seq_len)`.
"""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from flopcalc import counting
from flopcalc.batch import read_lengths
from flopcalc.conventions import Convention
from flopcalc.counting import Breakdown, Phase
from flopcalc.errors import InvalidBatch, InvalidConfig, InvalidOption
from flopcalc.tree import Kind, Module, Node, Routed, Weight, WeightLeaf

__all__ = ["AttentionFlops", "FlopCounter", "describe"]

_TOP_K = ("top_k", "topk", "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k")
"""Attributes of an experts module, of its parent or of the router beside it that say the top-k."""

TopK = int | Mapping[str, int | None] | None


@runtime_checkable
class AttentionFlops(Protocol):
    """A layer that says what its mixing of tokens costs, its weights left out."""

    def attention_flops(self, seq_len: int) -> int:
        """FLOPs of one training step (forward and backward) on one document of `seq_len` tokens."""


class FlopCounter:
    """FLOPs of a torch module for batches of documents; the module is walked once, here.

    Args:
        module: a built module, best on the meta device, before it is sharded or quantised.
        convention: what counts of the parameters (see `flopcalc.FlopCounter`).
        phase: `train`, or `forward` (a third of what the layers' `attention_flops` say).
        top_k: experts that a token uses, where the module does not say: one number, or by name or glob
            of a module or parameter; None there says that it holds no experts.

    A layer that implements `AttentionFlops` itself adds its term once; a wrapper that only forwards
    attributes adds none. A module named like attention that neither has the method nor holds or lies in
    one that has is warned about.

    Raises InvalidConfig (naming the module) or InvalidOption.
    """

    def __init__(
        self,
        module: nn.Module,
        convention: str | Convention = "standard",
        phase: Phase = "train",
        *,
        top_k: TopK = None,
    ) -> None:
        self.tree = describe(module, top_k)
        self.phase = phase
        self._weights = counting.FlopCounter(self.tree, convention, phase)
        self.convention = self._weights.convention
        self._layers = {path: layer for path, layer in module.named_modules() if _implements(layer)}
        self._costs: dict[int, tuple[int, ...]] = {}
        if silent := _silent(module):
            warnings.warn(
                f"flopcalc: {', '.join(silent[:3])}{' and more' * (len(silent) > 3)}: attention without "
                f"attention_flops(seq_len); only the weights are counted",
                UserWarning,
                stacklevel=2,
            )

    def __call__(self, seq_lens: Any, images: Any = None) -> int:
        """Total FLOPs of documents of these lengths, exact. Raises InvalidBatch."""
        if images is not None:
            raise InvalidBatch("images: a module without config tells no image tower; count it on its own")
        lengths = _lengths(seq_lens)
        return self._weights(lengths) + sum(sum(self._mixing(n)) for n in lengths)

    def flops_per_token(self, seq_len: int) -> float:
        """FLOPs per token of one document of `seq_len` tokens."""
        return self([seq_len]) / seq_len if seq_len else self._weights.flops_per_token(seq_len)

    def per_document(self, seq_lens: Any) -> Any:
        """FLOPs of each document, as an array of Python ints."""
        lengths = _lengths(seq_lens)
        mixing = np.array([sum(self._mixing(n)) for n in lengths], dtype=object)
        return np.asarray(self._weights.per_document(lengths), dtype=object) + mixing

    def breakdown(self, seq_lens: Any) -> Breakdown:
        """The total's parts, by module and by kind."""
        lengths = _lengths(seq_lens)
        rows = list(self._weights.breakdown(lengths).rows)
        for place, path in enumerate(self._layers):
            rows.append((path, "attention", sum(self._mixing(n)[place] for n in lengths)))
        return Breakdown(rows)

    def _mixing(self, seq_len: int) -> tuple[int, ...]:
        """What each layer says of one document."""
        if seq_len not in self._costs:
            self._costs[seq_len] = tuple(self._cost(path, layer, seq_len) for path, layer in self._layers.items())
        return self._costs[seq_len]

    def _cost(self, path: str, layer: Any, seq_len: int) -> int:
        said = layer.attention_flops(seq_len)
        try:
            flops = -1 if isinstance(said, bool) else operator.index(said)
        except TypeError:
            flops = -1
        parts = 3 if self.phase == "forward" else 1
        if flops < 0 or flops % parts:
            raise InvalidOption(
                f"{path or 'module'}.attention_flops({seq_len}): found {said!r}, expected the FLOPs of a training step "
                f"as a whole number >= 0{', a multiple of 3 to take the forward pass of' if parts > 1 else ''}"
            )
        return flops // parts


def describe(module: nn.Module, top_k: TopK = None) -> Module:
    """The tree of a built module's parameters. Raises InvalidConfig."""
    embeddings = {
        id(parameter)
        for part in module.modules()
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag))
        for parameter in part.parameters(recurse=False)
    }
    return _Reader(embeddings, top_k).module(module, "", None)


class _Reader:
    """Modules to nodes; each module once, wherever it stands."""

    def __init__(self, embeddings: set[int], top_k: TopK) -> None:
        self._embeddings = embeddings
        self._top_k = top_k
        self._seen: set[int] = set()

    def module(self, module: nn.Module, path: str, parent: nn.Module | None) -> Module:
        self._seen.add(id(module))
        prefix = f"{path}." if path else ""
        children: dict[str, Node] = {}
        for name, parameter in module.named_parameters(recurse=False):
            children[name] = self._parameter(module, name, parameter, prefix + name, parent)
        for name, child in module.named_children():
            if id(child) in self._seen:
                continue
            if name.endswith("experts") and isinstance(child, (nn.ModuleList, nn.ModuleDict)) and len(child):
                children[name] = self._list_of_experts(child, prefix + name, module)
            else:
                children[name] = self.module(child, prefix + name, module)
        return Module(**children)

    def _parameter(
        self, module: nn.Module, name: str, parameter: nn.Parameter, path: str, parent: nn.Module | None
    ) -> Node:
        shape = _shape(parameter, path)
        conv = isinstance(module, nn.modules.conv._ConvNd)
        stacked = not conv and len(shape) > 2
        bias = "bias" in name and len(shape) == 2
        if bias and not conv:  # one of each expert's
            stacked = any(p.ndim > 2 and len(p) == shape[0] for p in module.parameters(recurse=False))
        k = self._chosen(path, module, parent, shape[0]) if stacked else None
        if k is not None:
            return Routed(shape[0], k, weight=Weight(shape, "bias" if bias else "experts"))
        return Weight(shape, self._kind(module, name, parameter, conv))

    def _kind(self, module: nn.Module, name: str, parameter: nn.Parameter, conv: bool) -> Kind:
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            return "embedding"
        if "norm" in type(module).__name__.lower():
            return "norm"
        if parameter.ndim < 2:
            return "bias" if name.endswith("bias") else "vector"
        if conv:
            return "conv"
        return "head" if id(parameter) in self._embeddings else "linear"

    def _list_of_experts(self, experts: Any, path: str, parent: nn.Module) -> Node:
        """A list of equal experts, as stacked weights: k of E is exact then."""
        trees = [
            self.module(expert, f"{path}.{place}", parent)
            for place, expert in enumerate(experts.values() if isinstance(experts, nn.ModuleDict) else experts)
        ]
        if any(tree != trees[0] for tree in trees):
            raise InvalidConfig(
                f"{path}: found experts of different shapes, expected equal ones; count them on their own"
            )
        k = self._chosen(path, experts, parent, len(trees))
        return (
            Module(**{str(i): tree for i, tree in enumerate(trees)}) if k is None else _stacked(trees[0], len(trees), k)
        )

    def _chosen(self, path: str, module: nn.Module, parent: nn.Module | None, experts: int) -> int | None:
        """The top-k of experts at this path; None where the caller says that they are none."""
        if isinstance(self._top_k, Mapping):
            for pattern, k in self._top_k.items():
                if fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*"):
                    return None if k is None else _checked(path, k, experts)
        elif self._top_k is not None:
            return _checked(path, self._top_k, experts)
        around = [module, *([parent, *parent.children()] if parent is not None else [])]
        found = {(name, value) for part in around for name in _TOP_K if type(value := vars(part).get(name)) is int}
        if len({value for _, value in found}) != 1:
            raise InvalidConfig(
                f"{path}: {experts} experts or other stacked matrices; found top-k {sorted(found) or 'nowhere'}, "
                f"expected one; pass top_k={{{path!r}: k}}, or None there if every token multiplies through all of it"
            )
        return _checked(path, found.pop()[1], experts)


def _checked(path: str, k: Any, experts: int) -> int:
    if type(k) is not int or not 0 < k <= experts:
        raise InvalidConfig(f"{path}: found top-k {k!r}, expected 1 to {experts}, the number of experts")
    return k


def _stacked(node: Node, experts: int, k: int) -> Node:
    """The same node with one more leading dimension on every weight, of which k are used."""
    if isinstance(node, Weight):
        return Routed(
            experts, k, weight=Weight((experts, *node.shape), "experts" if node.kind == "linear" else node.kind)
        )
    assert isinstance(node, Module) and not isinstance(node, WeightLeaf)
    return Module(**{name: _stacked(child, experts, k) for name, child in node.children})


def _shape(parameter: nn.Parameter, path: str) -> tuple[int, ...]:
    lazy = nn.parameter.is_lazy(parameter)
    if lazy or type(parameter).__name__ == "FlatParameter" or not torch.is_floating_point(parameter):
        raise InvalidConfig(
            f"{path}: found {type(parameter).__name__} of {parameter.dtype}, expected a plain weight; count the module "
            f"before it is sharded or quantised, as built on the meta device"
        )
    return tuple(parameter.shape)


def _implements(layer: nn.Module) -> bool:
    """Whether a layer has the method itself: a wrapper that forwards attributes does not."""
    return inspect.getattr_static(layer, "attention_flops", None) is not None


def _silent(module: nn.Module) -> list[str]:
    """Names of modules called attention that no attention_flops speaks for."""
    return list(_unspoken(module, "")) if not _implements(module) else []


def _unspoken(module: nn.Module, path: str) -> Iterator[str]:
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        if any(map(_implements, child.modules())):
            if not _implements(child):
                yield from _unspoken(child, inner)
        elif "attention" in type(child).__name__.lower():
            yield f"{inner} ({type(child).__name__})"
        else:
            yield from _unspoken(child, inner)


def _lengths(seq_lens: Any) -> list[int]:
    """Checked lengths as a list."""
    lengths = read_lengths(seq_lens)
    return lengths if isinstance(lengths, list) else [int(n) for n in lengths.values]
