"""A model described once: a light tree that mirrors its `nn.Module` tree.

Nodes are frozen and hold shapes, not tensors; names are those of transformers 5, so that parameter
tables, LoRA targets and freeze patterns mean what they mean to PyTorch and PEFT. A tree states
structure only: no FLOP factor stands here (see `counting.py`).

    >>> layer = Module(up=Linear(8, 32), down=Linear(32, 8, bias=True))
    >>> tree = Module(layers=Layers([layer] * 3), norm=Norm(8))
    >>> list(tree.parameters())[:2]
    [('layers.0.up.weight', (32, 8)), ('layers.0.down.weight', (8, 32))]
    >>> tree.num_params(), tree.num_matmul_params()
    (1568, 1536)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from flopcalc.spans import Span

__all__ = [
    "LOOKUP_KINDS", "MATMUL_KINDS", "NEVER", "TEXT", "Attention", "ChannelScan", "Conv", "Conv1d", "DeltaRule",
    "Embedding", "IndexScores", "Kind", "LayerNorm", "Layers", "Linear", "LinearAttention", "Mamba", "Mamba2", "Mixer",
    "Module", "Node", "Norm", "Routed", "Shape", "Stream", "StreamMix", "Tensor", "Visit", "Weight", "WeightLeaf",
    "walk",
]  # fmt: skip

Shape = tuple[int, ...]
M = TypeVar("M", bound="Module")

Kind = Literal[
    "linear",  # projections
    "gated_query",  # the query projection whose other half emits the output gate of attention
    "output_gate",  # that gate in a matrix of its own
    "patch_embedding",  # pixels of a patch to its first vector
    "mtp_projection",  # hidden state and next embedding into a depth of multi-token prediction
    "router",  # scores of the experts
    "shared_gate",  # the scalar gate of shared experts
    "experts",  # routed expert matrices
    "head",  # the output matrix, tied or not
    "stream_map",  # hyper-connection maps
    "adapter",  # LoRA matrices beside another weight
    "embedding",  # the vocabulary's look-up table: no multiplication
    "lookup",  # other look-up tables: positions, n-grams
    "norm",
    "head_norm",  # of query and key heads
    "latent_norm",  # of the low-rank latents of latent attention
    "final_norm",  # before the head
    "mtp_norm",  # before and after a depth of multi-token prediction
    "bias",
    "conv",  # taps of depthwise convolutions
    "scan_conv",  # those of state-space layers
    "vector",  # any other bare parameter: sinks, A_log, dt_bias, position biases
]
MATMUL_KINDS: frozenset[Kind] = frozenset({
    "linear", "gated_query", "output_gate", "patch_embedding", "mtp_projection", "router", "shared_gate", "experts",
    "head", "stream_map", "adapter",
})  # fmt: skip
LOOKUP_KINDS: frozenset[Kind] = frozenset({"embedding", "lookup"})


class Tensor(NamedTuple):
    """One parameter tensor of a leaf. `tied_to` is the full name of the parameter it shares: the
    tensor is then counted there once, while its work is done here again."""

    name: str
    shape: Shape
    kind: Kind
    tied_to: str | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """The tokens that a subtree works on, counted from those of a source: `text`, `image` (patches of
    a frame), `audio` (frames), or `none`, whose subtrees never run.

    Args:
        every: how many tokens of the source make one; make `per` of them.
        extra: tokens beside those, such as a class token; none where the source has none.
        pad: zeros after the source's tokens; `every - 1` of them round up.
        chunk: the source is cut into chunks of so many tokens, each counted by itself.
        rows: vectors of each token: the frequencies of a spectrogram that are not yet one vector.
        pooled: whether the frames of a video become one.
        row: how many patches high a row of tokens is, where each row ends in one token more.
        unknown: why their number does not follow from the source's, where it does not; what works on such
            tokens has parameters, and no count.

    >>> Stream("audio", every=2, pad=1).tokens(5), Stream("image", every=4, extra=1).tokens(16)
    (3, 5)
    """

    source: str = "text"
    every: int = 1
    extra: int = 0
    pad: int = 0
    chunk: int | None = None
    rows: int = 1
    pooled: bool = False
    row: int | None = None
    per: int = 1
    unknown: str | None = None

    def tokens(self, n: Any) -> Any:
        """Tokens of a document (or image frame, or audio) of n source tokens; an int or an array."""
        if self.chunk is None:
            made = (n * self.per + self.pad) // self.every
        else:
            whole = (self.chunk + self.pad) // self.every
            made = n // self.chunk * whole + (n % self.chunk + self.pad) // self.every
        return made * self.rows + self.extra * (n > 0)


TEXT = Stream()
NEVER = Stream("none")


class Node:
    """Base of all nodes. The questions below are answered for the subtree under the node."""

    __slots__ = ()

    def parameters(self) -> Iterator[tuple[str, Shape]]:
        """(name, shape) of every parameter, as `named_parameters()` of the real model lists them:
        a tied tensor once, under its first name."""
        for visit in walk(self, expand=True):
            for tensor in visit.tensors:
                if tensor.tied_to is None:
                    yield ".".join(filter(None, (visit.path, tensor.name))), tensor.shape

    def num_params(self) -> int:
        """All parameters, shared tensors once."""
        return sum(
            visit.times * prod(tensor.shape)
            for visit in walk(self)
            for tensor in visit.tensors
            if tensor.tied_to is None
        )

    def num_active_params(self) -> int:
        """Parameters that one text token meets: routed experts by top_k / num_experts, norms and
        biases in, an embedding table only where it is also the output matrix."""
        return self._per_token(frozenset(get_args(Kind)) - LOOKUP_KINDS)

    def num_matmul_params(self) -> int:
        """Matrix weights that one text token multiplies through (projections, active experts,
        router, output head tied or not); no norms, biases, convolution taps or look-ups."""
        return self._per_token(MATMUL_KINDS)

    def _per_token(self, kinds: frozenset[Kind]) -> int:
        return sum(
            visit.times * visit.active(prod(tensor.shape))
            for visit in walk(self)
            if visit.stream.source == "text"
            for tensor in visit.tensors
            if tensor.kind in kinds
        )


# --- leaves with weights -------------------------------------------------------------------------


class WeightLeaf(Node):
    """A leaf that owns tensors."""

    __slots__ = ()

    def tensors(self) -> tuple[Tensor, ...]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Linear(WeightLeaf):
    """`nn.Linear`: weight (out, in) and an optional bias (out). `kind` says a special role;
    `tied_to` names the parameter whose tensor it uses; `transposed` stores (in, out), as GPT-2's
    Conv1D does. A block-diagonal projection is the Linear of one block's input width."""

    in_features: int
    out_features: int
    bias: bool = False
    kind: Kind = "linear"
    tied_to: str | None = None
    transposed: bool = False

    def tensors(self) -> tuple[Tensor, ...]:
        shape = (self.in_features, self.out_features) if self.transposed else (self.out_features, self.in_features)
        weight = Tensor("weight", shape, self.kind, self.tied_to)
        return (weight, Tensor("bias", (self.out_features,), "bias")) if self.bias else (weight,)


@dataclass(frozen=True, slots=True)
class Embedding(WeightLeaf):
    """`nn.Embedding`: a look-up, so no multiplication. One of anything but the vocabulary has the
    kind `lookup`."""

    num_embeddings: int
    dim: int
    tied_to: str | None = None
    kind: Kind = "embedding"

    def tensors(self) -> tuple[Tensor, ...]:
        return (Tensor("weight", (self.num_embeddings, self.dim), self.kind, self.tied_to),)


@dataclass(frozen=True, slots=True)
class Norm(WeightLeaf):
    """RMSNorm: one weight vector, which scales `vectors` vectors of a token (the heads)."""

    dim: int
    kind: Kind = "norm"
    vectors: int = 1

    def tensors(self) -> tuple[Tensor, ...]:
        return (Tensor("weight", (self.dim,), self.kind),)


@dataclass(frozen=True, slots=True)
class LayerNorm(WeightLeaf):
    """LayerNorm: weight and bias vectors."""

    dim: int
    bias: bool = True
    kind: Kind = "norm"

    def tensors(self) -> tuple[Tensor, ...]:
        weight = Tensor("weight", (self.dim,), self.kind)
        return (weight, Tensor("bias", (self.dim,), self.kind)) if self.bias else (weight,)


@dataclass(frozen=True, slots=True)
class Conv1d(WeightLeaf):
    """Depthwise `nn.Conv1d` over time: weight (channels, 1, taps)."""

    channels: int
    taps: int
    bias: bool = False
    kind: Kind = "conv"

    def tensors(self) -> tuple[Tensor, ...]:
        weight = Tensor("weight", (self.channels, 1, self.taps), self.kind)
        return (weight, Tensor("bias", (self.channels,), "bias")) if self.bias else (weight,)


@dataclass(frozen=True, slots=True)
class Conv(WeightLeaf):
    """A convolution that mixes channels: weight (out, in, *kernel). Each token of its stream is one
    output position, so a patch embedding is the matrix product it looks like."""

    in_channels: int
    out_channels: int
    kernel: Shape
    bias: bool = False
    kind: Kind = "linear"

    def tensors(self) -> tuple[Tensor, ...]:
        weight = Tensor("weight", (self.out_channels, self.in_channels, *self.kernel), self.kind)
        return (weight, Tensor("bias", (self.out_channels,), "bias")) if self.bias else (weight,)


@dataclass(frozen=True, slots=True)
class Weight(WeightLeaf):
    """A bare `nn.Parameter`, named by its place in the parent. A matrix kind says that a token
    multiplies through it (a router, a stream map, fused experts); the default is a vector.
    `transposed` says that a matrix is stored (in, out); `tied_to` names the parameter that it is a
    part of."""

    shape: Shape
    kind: Kind = "vector"
    transposed: bool = False
    tied_to: str | None = None

    def tensors(self) -> tuple[Tensor, ...]:
        return (Tensor("", self.shape, self.kind, self.tied_to),)


# --- mixers: work without weights ----------------------------------------------------------------


class Mixer(Node):
    """A leaf without weights: tokens meet tokens, a running state, or themselves."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Attention(Mixer):
    """Query-key and weight-value products of `heads` query heads over a span; a v_dim of 0 for scores that
    are added to those of another core. Latent attention also has the (qk_dim, v_dim) of its other form,
    which absorbs kv_b_proj into the queries."""

    heads: int
    qk_dim: int
    v_dim: int
    span: Span
    absorbed: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class IndexScores(Mixer):
    """Scores of a sparse-attention indexer: `heads` products of width `dim` per pair."""

    heads: int
    dim: int
    span: Span


@dataclass(frozen=True, slots=True)
class DeltaRule(Mixer):
    """(Gated) delta rule and KDA: a state of key_dim x value_dim per head, read, corrected, read."""

    heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Mamba2(Mixer):
    """Mamba-2 scan: a state of head_dim x state per head, updated and read out; `hidden` is the
    width of the tokens that its layer reads."""

    heads: int
    head_dim: int
    state: int
    hidden: int


@dataclass(frozen=True, slots=True)
class Mamba(Mixer):
    """Mamba-1 selective scan: `state` numbers per channel, updated and read out."""

    channels: int
    state: int


@dataclass(frozen=True, slots=True)
class LinearAttention(Mixer):
    """Linear (lightning) attention: a state of key_dim x value_dim per head, updated and read out."""

    heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class ChannelScan(Mixer):
    """A recurrence that works channel by channel, `state` numbers each, without a product (RG-LRU, RWKV-4)."""

    channels: int
    state: int


@dataclass(frozen=True, slots=True)
class StreamMix(Mixer):
    """Hyper-connections: a (streams x streams) map of one token times its `streams` residual
    vectors of `width`; one of `rows` where the token reads so many vectors out of them."""

    streams: int
    width: int
    rows: int | None = None


# --- containers ----------------------------------------------------------------------------------


@dataclass(frozen=True, init=False)
class Module(Node):
    """Named children, as an `nn.Module`. A child given as None does not exist.

    Children stand in the order in which they run: each is fed by all before it, except those named
    in `reading()`. Only `training.py` uses the order, to find where gradients flow.

    `on(stream)` puts the subtree on another token stream, `without_grad()` says that training runs
    it forward only and that no gradient leaves it (an indexer, layers whose output nothing reads),
    `never_run()` that its parameters exist and do nothing, `sharing(path)` that its parameters are
    those of the module at that full path, which `runs_again` or else is another with tied weights;
    like `reading()` they return a copy. The `model_type` is that of a whole model which a registered
    estimator described.
    """

    children: tuple[tuple[str, Node], ...]
    stream: Stream | None = None
    grad: bool = True
    indexes: bool = False
    reads: tuple[tuple[str, str | None], ...] = ()
    shared: str | None = None
    runs_again: bool = False
    model_type: str | None = None

    def __init__(self, /, **children: Node | None) -> None:
        present = tuple((name, child) for name, child in children.items() if child is not None)
        object.__setattr__(self, "children", present)

    def _copy(self: M, **changes: object) -> M:
        copy = object.__new__(type(self))
        for name, value in {**vars(self), **changes}.items():
            object.__setattr__(copy, name, value)
        return copy

    def on(self, stream: Stream) -> Module:
        return self._copy(stream=stream)

    def reading(self, *names: str, **sources: str) -> Module:
        """Say what feeds some children: `names` read the module's own input alone (query, key and
        value; gate and up), a keyword names the one earlier child that a child reads
        (`q_norm="q_proj"`), or else one of the modules around. One that all lack lets the own input
        through; an empty name says that a child reads constants, such as the angles of positions."""
        reads: dict[str, str | None] = {**dict(self.reads), **dict.fromkeys(names), **sources}
        return self._copy(reads=tuple(reads.items()))

    def holding(self, **children: Node) -> Module:
        """With more children, behind those that are there."""
        return self._copy(children=(*self.children, *children.items()))

    def replacing(self, **others: Mapping[str, Node]) -> Module:
        """With other children in the place of the one that a keyword names."""
        kept = ((others[name].items() if name in others else [(name, child)]) for name, child in self.children)
        return self._copy(children=tuple(child for children in kept for child in children))

    def of_type(self, model_type: str) -> Module:
        return self._copy(model_type=model_type)

    def without_grad(self) -> Module:
        return self._copy(grad=False)

    def as_indexer(self) -> Module:
        """The indexer of sparse attention: only indices come out, so no gradient goes in."""
        return self._copy(grad=False, indexes=True)

    def sharing(self, path: str, *, runs_again: bool = True) -> Module:
        return self._copy(shared=path, runs_again=runs_again)

    def never_run(self) -> Module:
        return self._copy(grad=False, stream=NEVER)


@dataclass(frozen=True, init=False)
class Layers(Module):
    """`nn.ModuleList`: children named 0, 1, 2, ... Equal layers should be one object used many
    times: a walk then visits it once."""

    def __init__(self, layers: Iterable[Node]) -> None:
        object.__setattr__(self, "children", tuple((str(i), layer) for i, layer in enumerate(layers)))

    def cut(self, first: int, end: int) -> Layers:
        """Some of the layers, under the names that they have."""
        return self._copy(children=self.children[first:end])

    def looped(self, path: str, first: int, count: int, runs: int, again: Module | None = None) -> Layers:
        """With `count` layers from `first` on run `runs` times in a row, each time with the same
        weights; `path` is the full name of this list, `loop_1` that of the second run in it, which is
        `again` where that is not just these layers."""
        end = first + count
        again = again or self.cut(first, end).sharing(path)
        loops = tuple((f"loop_{run}", again) for run in range(1, runs))
        return self._copy(children=(*self.children[:end], *loops, *self.children[end:]))


@dataclass(frozen=True, init=False)
class Routed(Module):
    """Children of which a token uses `top_k` of `num_experts` parts: fused weights whose leading
    dimension is the expert, or a list of experts."""

    num_experts: int = 1
    top_k: int = 1

    def __init__(self, num_experts: int, top_k: int, /, **children: Node | None) -> None:
        super().__init__(**children)
        object.__setattr__(self, "num_experts", num_experts)
        object.__setattr__(self, "top_k", top_k)


# --- the walk ------------------------------------------------------------------------------------


class Visit(NamedTuple):
    """One leaf as a walk meets it: `times` counts the places of the same object (path names the
    first), `top_k / num_experts` is the share of its tensors that a token uses, and `experts` the
    path of the `Routed` that it is part of; `indexes` says that it is part of an indexer, `owner` where
    the parameters that it shares stand."""

    path: str
    leaf: Node
    times: int
    stream: Stream
    grad: bool
    top_k: int
    num_experts: int
    experts: str | None = None
    indexes: bool = False
    owner: str | None = None
    runs_again: bool = False

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        tensors = self.leaf.tensors() if isinstance(self.leaf, WeightLeaf) else ()
        if self.owner is None:
            return tensors
        return tuple(t._replace(tied_to=".".join(filter(None, (self.owner, t.name)))) for t in tensors)

    def active(self, numel: int) -> int:
        """The share of `numel` parameters that one token uses: exact, the leading dimension is the
        expert."""
        return numel * self.top_k // self.num_experts


def walk(node: Node, *, expand: bool = False) -> Iterator[Visit]:
    """Every leaf under `node`. Equal layers of a list are visited once with their count, unless
    `expand` asks for each by its own path."""
    yield from _walk(node, Visit("", node, 1, TEXT, True, 1, 1), expand)


def _walk(node: Node, at: Visit, expand: bool) -> Iterator[Visit]:
    if not isinstance(node, Module):
        yield at
        return
    stream = NEVER if at.stream == NEVER else node.stream or at.stream
    at = at._replace(
        stream=stream,
        grad=at.grad and node.grad,
        indexes=at.indexes or node.indexes,
        owner=at.owner or node.shared,
        runs_again=at.runs_again or node.runs_again,
    )
    if isinstance(node, Routed):
        at = at._replace(top_k=at.top_k * node.top_k, num_experts=at.num_experts * node.num_experts, experts=at.path)
    prefix = f"{at.path}." if at.path else ""
    if isinstance(node, Layers) and not expand:
        counts = Counter(id(child) for _, child in node.children)
        firsts = {id(child): name for name, child in reversed(node.children)}
        children = [(name, child, counts[id(child)]) for name, child in node.children if firsts[id(child)] == name]
    else:
        children = [(name, child, 1) for name, child in node.children]
    for name, child, times in children:
        path = prefix + name if name else at.path  # without a name, the child stands in the module's place
        owner = f"{at.owner}.{name}" if at.owner is not None and name else at.owner
        yield from _walk(child, at._replace(path=path, leaf=child, times=at.times * times, owner=owner), expand)
