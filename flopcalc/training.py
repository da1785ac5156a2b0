"""What is trained, and where gradients flow.

A leaf's backward passes follow from two questions. Is a tensor of it trained? Then it has a weight
gradient. Is anything upstream of its input trained? Then it has an input gradient. LoRA, frozen
towers, frozen layers and full training are all this one rule.

Two readings of "upstream" are in use (`Convention.input_gradient`):

* `autograd`: exactly where autograd computes one. Pixels and audio frames carry no gradient; with
  LoRA, what lies before the first adapter takes none.
* `always`: what the field's formulas say. A trained weight costs three passes even where it reads
  pixels, and a model with adapters takes an input gradient everywhere in the token stream that they
  are in, so that a frozen weight costs 4 FLOPs per token and attention as much as in full training.
  Frozen patterns follow gradients as under `autograd`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from fnmatch import fnmatchcase
from math import prod
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator

from flopcalc.adapters import Adapter, Placement, place
from flopcalc.errors import InvalidOption
from flopcalc.lora import Lora
from flopcalc.options import Options
from flopcalc.tree import Attention, Module, Node, StreamMix, Weight, WeightLeaf, walk

__all__ = ["Gradient", "InputGradient", "Plan", "Recompute", "Training", "plan"]

InputGradient = Literal["always", "autograd"]
Recompute = float | Literal["full", "selective"]


class Training(Options):
    """What learns in a training step.

    Args:
        trained: patterns of module or parameter names that learn; None for all, or with `lora` for
            no more than its adapters.
        frozen: patterns of names that do not learn, taken out of `trained`.
        lora: adapters, as a `Lora`, a live `peft.LoraConfig` or the content of an adapter_config.json.
        recompute: activations computed again in the backward pass: "full", "selective" (attention
            cores alone) or the fraction of the forward pass, in [0, 1]. Changes `hardware_flops()` alone.
        mtp: depths of multi-token prediction that run beside the model: as many as the config says
            (True), or a number; `mtp_head` says whether each passes through the output head.

    A pattern is a name or a glob (`*` crosses dots), and covers everything under it:
    `model.visual`, `model.layers.[0-3]`, `*.mlp`. One that matches nothing is an InvalidOption. Tied
    tensors are one: to freeze the embedding is to freeze the head that uses it.
    """

    trained: tuple[str, ...] | None = None
    frozen: tuple[str, ...] = ()
    lora: Lora | None = None
    recompute: Recompute | None = None
    mtp: bool | int = Field(default=False, ge=0)
    mtp_head: bool = True

    @field_validator("recompute", mode="before")
    @classmethod
    def _check_recompute(cls, share: Any) -> Any:
        known = share is None or (isinstance(share, str) and share in ("full", "selective"))
        if known or (isinstance(share, (int, float)) and not isinstance(share, bool) and 0 <= share <= 1):
            return share
        raise ValueError(f"found {share!r}, expected 'full', 'selective' or a fraction of the forward pass in [0, 1]")

    @property
    def everything(self) -> bool:
        """Whether all parameters learn, and nothing else."""
        return self.trained is None and not self.frozen and self.lora is None

    @field_validator("lora", mode="before")
    @classmethod
    def _read_lora(cls, lora: Any) -> Any:
        if isinstance(lora, Mapping) and "peft_type" in lora:
            return Lora.of(lora)
        return Lora.of(vars(lora)) if hasattr(lora, "peft_type") else lora


class Gradient(NamedTuple):
    """The backward passes of a leaf."""

    input: bool
    """Whether its input needs a gradient."""
    trained: frozenset[str] = frozenset()
    """Names of its tensors that learn."""
    operands: tuple[bool, bool, bool, bool] = (True, True, True, True)
    """For attention: whether query, key, value and the softmax of the scores need one. For a mix of
    residual streams: whether the map and the streams do."""


class Plan(NamedTuple):
    """A `Training` resolved on a tree."""

    gradients: Mapping[str, Gradient]
    """By path of the leaf."""
    adapters: Mapping[str, Adapter]
    """By path of the adapted leaf."""
    num_trainable_params: int
    num_adapter_params: int


def plan(tree: Node, training: Training, input_gradient: InputGradient = "autograd") -> Plan:
    """Resolve patterns and adapters against a tree.

    Raises InvalidOption for a pattern or a target that matches nothing.
    """
    tensors = [
        (_join(visit.path, tensor.name), tensor, visit) for visit in walk(tree, expand=True) for tensor in visit.tensors
    ]
    tied = {name: tensor.tied_to or name for name, tensor, _ in tensors}
    owners = {name: tied.get(owner, owner) for name, owner in tied.items()}
    placement = place(training.lora, tree) if training.lora is not None else Placement({}, {}, frozenset(), frozenset())
    chosen = {owners[name] for name in placement.biases}
    if training.trained is not None:
        chosen |= _matching("trained", training.trained, owners)
    elif training.lora is None:
        chosen |= set(owners.values())
    chosen -= _matching("frozen", training.frozen, owners)
    learning = {name for name, owner in owners.items() if owner in chosen} | placement.saved

    sources: frozenset[str] = frozenset()
    if input_gradient == "always" and placement.adapters:
        sources = frozenset(visit.stream.source for _, _, visit in tensors if visit.path in placement.adapters)
    sizes = {name: prod(tensor.shape) for name, tensor, _ in tensors}
    adapters = sum(prod(tensor.shape) for adapter in placement.adapters.values() for tensor in adapter.tensors)
    trained = {owners[name] for name in learning - placement.saved} | placement.saved
    running = {**placement.adapters, **placement.again}
    return Plan(
        _Flow(learning, running, sources, raw_inputs=input_gradient == "always").of(tree),
        running,
        adapters + sum(sizes[name] for name in trained),
        adapters,
    )


def _join(*parts: str) -> str:
    return ".".join(filter(None, parts))


def _matching(field: str, patterns: tuple[str, ...], owners: Mapping[str, str]) -> set[str]:
    """The parameters under names that match."""
    found: set[str] = set()
    for pattern in patterns:
        matches = _under(pattern)
        matched = {owner for name, owner in owners.items() if matches(name)}
        if not matched:
            raise InvalidOption(
                f"Training.{field}: found pattern {pattern!r}, which matches no parameter; expected module or "
                f"parameter names such as {next(iter(owners), 'none')!r} (`flopcalc params --table` lists them)"
            )
        found |= matched
    return found


def _under(pattern: str) -> Callable[[str], bool]:
    """Whether a name is the pattern, a plain name or a glob, or lies under it."""
    if not set(pattern) & set("*?["):
        return lambda name: name.startswith(pattern) and name[len(pattern) : len(pattern) + 1] in ("", ".")
    return lambda name: fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


class _Flow:
    """One pass over a tree in execution order, which notes the gradient of every leaf.

    "Fed" says whether an input carries a gradient; None is a raw input (ids, pixels, frames).

    Args:
        learning: full names of the tensors that learn.
        adapters: by path of the adapted leaf.
        fed_sources: token sources whose input counts as carrying a gradient.
        raw_inputs: whether a trained weight takes an input gradient even of a raw input.
    """

    def __init__(
        self, learning: Set[str], adapters: Mapping[str, Adapter], fed_sources: Set[str], *, raw_inputs: bool
    ) -> None:
        self.learning = learning
        self.adapters = adapters
        self.fed_sources = fed_sources
        self.raw_inputs = raw_inputs
        self.found: dict[str, Gradient] = {}
        self.scopes: list[dict[str, bool | None]] = []
        """Of the modules that a child is in, whether the output of each child so far carries a gradient."""
        self.left: dict[str, bool | None] = {}
        """By token source, whether what came out of its last module carries a gradient: a projector behind a
        tower reads that, not the text."""

    def of(self, tree: Node) -> dict[str, Gradient]:
        self.visit(tree, "", self.input_of("text"), "text")
        return self.found

    def input_of(self, source: str) -> bool | None:
        return True if source in self.fed_sources else None

    def visit(self, node: Node, path: str, fed: bool | None, source: str) -> bool | None:
        """Whether the output of `node` carries a gradient."""
        if isinstance(node, Module):
            return self.children(node, path, fed, source)
        if not isinstance(node, WeightLeaf):
            self.found[path] = Gradient(bool(fed), frozenset(), (bool(fed),) * 4)
            return fed
        learns = frozenset(tensor.name for tensor in node.tensors() if _join(path, tensor.name) in self.learning)
        learnt = bool(learns) or path in self.adapters
        self.found[path] = Gradient(learnt if fed is None and self.raw_inputs else bool(fed), learns)
        return bool(fed) or learnt

    def children(self, module: Module, path: str, fed: bool | None, source: str) -> bool | None:
        outside = source
        if module.stream is not None and module.stream.source != source:
            source = module.stream.source
            fed = self.left.get(source) or self.input_of(source)
        carried, reads = fed, dict(module.reads)
        outputs: dict[str, bool | None] = {}
        self.scopes.append(outputs)
        for name, child in module.children:
            into = carried
            if name in reads:
                origin = reads[name]
                into = fed if origin is None else self.output(origin, fed) if origin else None
            if isinstance(child, StreamMix):
                self.found[_join(path, name)] = Gradient(
                    bool(carried), operands=(bool(carried), bool(fed), False, False)
                )
                outputs[name] = carried
            elif isinstance(child, Attention):
                self.found[_join(path, name)] = gradient = self.attention(module, path, bool(fed), outputs)
                outputs[name] = gradient.input
            else:
                outputs[name] = self.visit(child, _join(path, name), into, source)
            carried = carried or outputs[name]
        self.scopes.pop()
        carried = carried if module.grad else False
        if source != outside:
            self.left[source] = carried
        return carried

    def output(self, name: str, fed: bool | None) -> bool | None:
        """Whether what came out of a child of that name, of the nearest module that has one, carries a gradient."""
        return next((outputs[name] for outputs in reversed(self.scopes) if name in outputs), fed)

    def attention(self, module: Module, path: str, fed: bool, outputs: Mapping[str, bool | None]) -> Gradient:
        """The operands of an attention core, by the names of the siblings that ran before it."""
        needs, told = set(), set()
        for name, child in module.children:
            if isinstance(child, Weight):  # a sink or a position bias of the scores
                needs |= {"s"} if outputs.get(name) and self.found[_join(path, name)].trained else set()
            elif name in outputs:
                operands = _operands(_speaking(name, child))
                told |= operands
                needs |= (operands or set("qkv")) if outputs[name] else set()
        if fed:  # of operands that no child is known to make
            needs |= set("qkvs") - told
        query, key, value = ("q" in needs, "k" in needs, "v" in needs)
        return Gradient(bool(needs), frozenset(), (query, key, value, query or key or "s" in needs))


_OPERANDS = {
    "query": "q",
    "key": "k",
    "value": "v",
    "compressor": "kv",
    "pos": "k",
    "position": "s",
    "sink": "s",
    "bias": "s",
}


def _speaking(name: str, child: Node) -> str:
    """The name of a child, or, where it has none, of its own last child."""
    return child.children[-1][0] if not name and isinstance(child, Module) and child.children else name


def _operands(name: str) -> set[str]:
    """The operands of attention that a module of this name leads to: q_proj, k_norm, kv_b_proj,
    query_key_value, Wq, the scores for sink_proj; none where it says nothing, as c_attn."""
    words = (_OPERANDS.get(word, word.removeprefix("w")) for word in name.lower().split("_"))
    return {letter for word in words if set(word) <= set("qkvs") for letter in word}
