"""(tree, batch, convention, training) to FLOPs. The only place with FLOP arithmetic.

    work(document) = sum over weights of 2 * active_params * tokens * passes
                   + sum over mixers of  c * pairs(span, n) * passes

A multiply-add is 2 FLOPs. A mixer's c is 2 * heads * (qk_dim + v_dim) for attention (one product
for the scores, one for the values), 2 * heads * dim for indexer scores, and a convention's factor
times the state's size for a recurrence. Training runs three passes over everything (forward, input
gradient, weight gradient; attention's backward is twice its forward), except what runs without
gradient. Norms, activations, rotary embeddings and the optimizer are never counted, mask and softmax
where a convention says so alone. How a convention reads a tree (which parameters, tokens and pairs
count) stands in `reading.py`.

Each span of a model has one integer coefficient, so the tree is walked once, at construction, and a
batch costs a few sums over its lengths. All totals are exact Python integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

from flopcalc.batch import Grid, Long, read_images, read_lengths
from flopcalc.conventions import Convention, get_convention
from flopcalc.errors import InvalidBatch, InvalidOption
from flopcalc.estimators import describe
from flopcalc.reading import SHOWN_AS, counted_params, counted_stream, read_pairs
from flopcalc.routing import read_routing
from flopcalc.spans import Rule, Span
from flopcalc.training import Gradient, Plan, Training, plan
from flopcalc.tree import (
    TEXT,
    Attention,
    ChannelScan,
    DeltaRule,
    IndexScores,
    LinearAttention,
    Mamba,
    Mamba2,
    Mixer,
    Node,
    Stream,
    StreamMix,
    Tensor,
    Visit,
    walk,
)
from flopcalc.work import Work

__all__ = ["Breakdown", "FlopCounter", "Phase", "Term", "estimate_flops", "gather", "terms"]

Phase = Literal["train", "forward"]


class Term(NamedTuple):
    """FLOPs of one leaf: `flops` per token of the stream, or per pair of `span` within it."""

    path: str
    kind: str
    stream: Stream
    span: Span | None
    flops: int
    experts: Experts | None = None
    """The routed experts that the leaf is part of."""
    rule: Rule = "dense"
    """Which pairs of the span count."""


class Experts(NamedTuple):
    """Routed experts by their path. `flops` of a term are those of `top_k` of them a token."""

    path: str
    num_experts: int
    top_k: int


def terms(
    tree: Node, convention: Convention, phase: Phase, plan: Plan | None = None, *, expand: bool = False
) -> Iterator[Term]:
    """The work of every leaf, each convention knob applied; equal layers at once unless `expand`
    or a training plan tells them apart. Without a plan, everything is trained."""
    visits = list(walk(tree, expand=expand or plan is not None))
    forward_only = () if convention.delta_backward else tuple(_delta_rule_modules(visits))
    for visit in visits:
        stream = counted_stream(visit, convention)
        if stream is None:
            continue
        run = "forward" if visit.path.startswith(forward_only) else phase
        if isinstance(visit.leaf, Mixer):
            gradient = plan.gradients[visit.path] if plan is not None else Gradient(input=True)
            yield from _mixer_terms(visit, convention, run, gradient)
            continue
        if visit.indexes and convention.indexer_weights == "none":
            continue
        backward = run == "train" and (visit.grad or (visit.indexes and convention.indexer_weights == "trained"))
        for tensor, passes in _weight_passes(visit, plan):
            if params := counted_params(visit, tensor, convention):
                flops = 2 * params * (passes if backward else 1) * visit.times
                path = ".".join(filter(None, (visit.path, tensor.name)))
                routed = visit.experts is not None and convention.experts == "active"
                experts = Experts(visit.experts or "", visit.num_experts, visit.top_k) if routed else None
                yield Term(path, SHOWN_AS.get(tensor.kind, tensor.kind), stream, None, flops, experts)


def _delta_rule_modules(visits: list[Visit]) -> Iterator[str]:
    return (visit.path.rpartition(".")[0] + "." for visit in visits if isinstance(visit.leaf, DeltaRule))


def _weight_passes(visit: Visit, plan: Plan | None) -> Iterator[tuple[Tensor, int]]:
    """Each tensor of a leaf and of its adapter with its passes: forward, input gradient, weight gradient."""
    if plan is None:
        yield from ((tensor, 3) for tensor in visit.tensors)
        return
    gradient = plan.gradients[visit.path]
    yield from ((tensor, 1 + gradient.input + (tensor.name in gradient.trained)) for tensor in visit.tensors)
    if (adapter := plan.adapters.get(visit.path)) is not None:
        yield adapter.a, 2 + gradient.input
        yield from ((tensor, 3) for tensor in (adapter.b, *adapter.others))


def _mixer_terms(visit: Visit, convention: Convention, phase: Phase, gradient: Gradient) -> Iterator[Term]:
    backward = phase == "train" and (visit.grad or (visit.indexes and convention.indexer_scores == "trained"))
    passes = 3 if backward and gradient.input else 1

    def term(kind: str, flops: int) -> Term:
        return Term(visit.path, kind, visit.stream, None, flops * visit.times)

    def pair_terms(kind: str, flops: int, span: Span) -> Iterator[Term]:
        for part in span.parts():
            counted, rule, divisor = read_pairs(part, convention, indexer=kind == "index_scores")
            if divisor:  # exact: `flops` is even
                yield Term(visit.path, kind, visit.stream, counted, flops * visit.times // divisor, None, rule)

    match visit.leaf:
        case Attention(heads, qk_dim, v_dim, span, absorbed):
            if convention.latent_core == "absorbed" and absorbed is not None:
                qk_dim, v_dim = absorbed
            elif convention.latent_core == "query_width":
                v_dim = qk_dim
            query, key, value, weights = (backward and operand for operand in gradient.operands)
            scores = 1 + query + key  # each operand's gradient is one more product of the same size
            values = 1 + weights + value
            softmax = convention.softmax * (1 + 2 * weights) if v_dim else 0  # none of scores that others add
            yield from pair_terms("attention", heads * (2 * qk_dim * scores + 2 * v_dim * values + softmax), span)
        case IndexScores(heads, dim, span) if convention.indexer_scores != "none":
            dim += convention.indexer_head_sum
            yield from pair_terms("index_scores", 2 * heads * dim * passes, span)
        case IndexScores():
            pass
        case DeltaRule(heads, key_dim, value_dim):
            if convention.delta_state == "value_value":
                key_dim = value_dim
            yield term("delta_rule", convention.delta_rule * heads * key_dim * value_dim * passes)
        case Mamba2(heads, head_dim, state, hidden):
            inner = heads * head_dim
            width = 2 * hidden if convention.mamba2_width == "twice_hidden" else inner
            projections = 2 * 3 * hidden * (width - inner)  # in_proj has two such rows for out_proj's one column
            yield term("mamba2", (convention.mamba2 * width * state + projections) * passes)
        case Mamba(channels, state):
            yield term("mamba", convention.mamba * channels * state * passes)
        case LinearAttention(heads, key_dim, value_dim):
            yield term("linear_attention", convention.linear_attention * heads * key_dim * value_dim * passes)
        case ChannelScan():
            pass  # elementwise: docs/recurrences.md
        case StreamMix(streams, width, rows):
            flops = 2 * (rows or streams) * streams * width if convention.stream_mix else 0
            products = 1 + sum(backward and operand for operand in gradient.operands[:2])
            yield term("stream_mix", flops * products + convention.stream_vectors * streams * width * passes)
        case leaf:
            raise TypeError(f"no counting rule for {leaf!r}")


class FlopCounter:
    """FLOPs of a model for batches of documents; the config is read once, here.

    Args:
        config: a dict, a transformers config object, a path to config.json or its folder, a bundled
            name, a hub id, or a tree that `describe` gave.
        convention: a name in `CONVENTIONS` or a `Convention`.
        phase: `train` (forward and backward) or `forward`.
        training: what learns; everything where None.

    Raises UnsupportedModel, InvalidConfig or InvalidOption.

    >>> counter = FlopCounter({"model_type": "llama"})
    >>> counter([256] * 4) == counter([256]) * 4
    True
    """

    def __init__(
        self,
        config: Any,
        convention: str | Convention = "standard",
        phase: Phase = "train",
        training: Training | None = None,
    ) -> None:
        self.convention = get_convention(convention)
        if phase not in get_args(Phase):
            raise InvalidOption(f"phase: found {phase!r}, expected 'train' or 'forward'")
        self.phase: Phase = phase
        self.training = training or Training()
        self.tree = _described(config, self.training)
        self._rules = self.convention.for_model(getattr(self.tree, "model_type", None))
        self._plan = _plan(self.tree, self._rules, phase, self.training)
        self._work = gather(self.terms())
        self._text = self._work[TEXT]
        self._text_only = len(self._work) == 1

    def terms(self, *, expand: bool = False) -> Iterator[Term]:
        """The work of every leaf, equal layers at once unless `expand`."""
        return terms(self.tree, self._rules, self.phase, self._plan, expand=expand)

    def __call__(self, seq_lens: Any, images: Any = None, audios: Any = None, *, routing: Any = None) -> int:
        """Total FLOPs of a batch, exact.

        Args:
            seq_lens: tokens of each document (image and audio tokens of the text included).
            images: patches of each image, or its (frames, height, width) in patches.
            audios: frames of each audio.
            routing: how experts were used, where that was measured: tokens that each expert computed,
                as (MoE layers, experts), or the mean number of experts that computed a token. Without
                it, every token is computed by top_k.

        Raises InvalidBatch for lengths that are not whole numbers >= 0, and for images, audios or
        routing that the model has no part for.
        """
        if self._text_only and images is None and audios is None and routing is None:
            return self._text.total(read_lengths(seq_lens))
        batch = self._read(seq_lens, images, audios)
        flops = sum(_amount(work, stream, batch) for stream, work in self._work.items())
        if routing is None:
            return flops
        tokens = _tokens(batch)
        assigned = self._read_routing(routing, tokens)
        return flops + sum(
            per_token // experts.top_k * (assigned[experts.path] - experts.top_k * tokens)
            for experts, per_token in self._experts.items()
        )

    def hardware_flops(self, seq_lens: Any, images: Any = None, audios: Any = None, *, routing: Any = None) -> int:
        """FLOPs of a batch that the devices run: those of the model, and the activations that
        `training.recompute` computes again. The arguments are those of a call."""
        again = self.recomputed_flops(seq_lens, images, audios, routing=routing)
        return self(seq_lens, images, audios, routing=routing) + again

    def recomputed_flops(self, seq_lens: Any, images: Any = None, audios: Any = None, *, routing: Any = None) -> int:
        """FLOPs of the activations of a batch that `training.recompute` computes again. The arguments
        are those of a call."""
        share = self.training.recompute
        if share is None or self.phase == "forward":
            return 0
        if share == "selective":
            batch = self._read(seq_lens, images, audios)
            return sum(_amount(work, stream, batch) for stream, work in self._attention_again.items())
        forward = self._again(seq_lens, images, audios, routing=routing)
        return forward if share == "full" else round(Fraction(str(share)) * forward)

    @cached_property
    def _again(self) -> FlopCounter:
        return FlopCounter(self.tree, self.convention, "forward", self.training)

    @cached_property
    def _attention_again(self) -> dict[Stream, Work]:
        forward = terms(self.tree, self._rules, "forward")
        return gather(term for term in forward if term.kind == "attention")

    @cached_property
    def _experts(self) -> dict[Experts, int]:
        """FLOPs a token of the routed experts of each MoE layer."""
        found: dict[Experts, int] = {}
        for term in self.terms(expand=True):
            if term.experts is not None:
                found[term.experts] = found.get(term.experts, 0) + term.flops
        return found

    def _read_routing(self, routing: Any, tokens: int) -> dict[str, int]:
        return read_routing(
            routing, {experts.path: (experts.num_experts, experts.top_k) for experts in self._experts}, tokens
        )

    def num_trainable_params(self) -> int:
        """Parameters that learn, adapters included; shared tensors once."""
        return self.tree.num_params() if self.training.everything else self._resolved.num_trainable_params

    def num_adapter_params(self) -> int:
        """Parameters of LoRA adapters."""
        return 0 if self.training.lora is None else self._resolved.num_adapter_params

    @property
    def _resolved(self) -> Plan:
        return self._plan or plan(self.tree, self.training)

    def flops_per_token(self, seq_len: int) -> float:
        """FLOPs per token of one document of `seq_len` tokens."""
        if seq_len == 0:
            raise InvalidBatch("seq_len: found 0, expected at least 1 token")
        return self([seq_len]) / seq_len

    def per_document(self, seq_lens: Any) -> Any:
        """FLOPs of each document's text, as an int64 array of the same length; as an array of
        Python ints where a document passes 2**63 FLOPs. Its sum is `counter(seq_lens)`."""
        lengths = read_lengths(seq_lens)
        works = [(stream, work) for stream, work in self._work.items() if stream.source == "text"]
        return sum(work.each(_thinned(lengths, stream)) for stream, work in works)

    def breakdown(self, seq_lens: Any, images: Any = None, audios: Any = None, *, routing: Any = None) -> Breakdown:
        """The total's parts, by module and by kind. The arguments are those of a call."""
        return Breakdown(self._parts(self.terms(expand=True), seq_lens, images, audios, routing))

    def by_kind(self, seq_lens: Any, images: Any = None, audios: Any = None) -> dict[str, int]:
        """FLOPs of each kind of work: `breakdown().by_kind()` without the modules, and faster."""
        return Breakdown(self._parts(self.terms(), seq_lens, images, audios)).by_kind()

    def _parts(
        self, terms: Iterable[Term], seq_lens: Any, images: Any, audios: Any, routing: Any = None
    ) -> list[tuple[str, str, int]]:
        """(path, kind, FLOPs) of each term on a batch."""
        batch = self._read(seq_lens, images, audios)
        assigned = {} if routing is None else self._read_routing(routing, _tokens(batch))
        amounts: dict[tuple[Stream, Span | None, Rule], int] = {}
        rows = []
        for term in terms:
            key = (term.stream, term.span, term.rule)
            if key not in amounts:  # twice the pairs, so that half of them stays whole
                amounts[key] = _amount(Work.of([(term.span, term.rule, 2)]), term.stream, batch)
            if term.experts is not None and assigned:
                flops = term.flops // term.experts.top_k * assigned[term.experts.path]
            else:
                flops = term.flops * amounts[key] // 2
            rows.append((term.path, term.kind, flops))
        return rows

    @cached_property
    def _sources(self) -> frozenset[str]:
        return frozenset(visit.stream.source for visit in walk(self.tree))

    def _read(self, seq_lens: Any, images: Any, audios: Any) -> _Batch:
        for name, source, given in (("images", "image", images), ("audios", "audio", audios)):
            if given is not None and source not in self._sources:
                model_type = getattr(self.tree, "model_type", None) or "this model"
                raise InvalidBatch(f"{name}: given, but no {source} tower of {model_type} is counted; leave {name} out")
        return _Batch(
            read_lengths(seq_lens),
            [] if images is None else read_images(images),
            [] if audios is None else read_lengths(audios, "audios"),
        )


def gather(terms: Iterable[Term]) -> dict[Stream, Work]:
    """The summed work of each stream."""
    gathered: dict[Stream, list[tuple[Span | None, Rule, int]]] = {TEXT: []}
    for term in terms:
        gathered.setdefault(term.stream, []).append((term.span, term.rule, term.flops))
    return {stream: Work.of(items) for stream, items in gathered.items()}


def _described(config: Any, training: Training) -> Node:
    if not isinstance(config, Node):
        return describe(config, mtp=training.mtp, mtp_head=training.mtp_head)
    if training.mtp and "mtp" not in dict(getattr(config, "children", ())):
        raise InvalidOption(
            f"mtp: found {training.mtp!r} for a tree without depths; describe(config, mtp=True) has them"
        )
    return config


def _plan(tree: Node, convention: Convention, phase: Phase, training: Training) -> Plan | None:
    """The plan of a training, or None where all passes are run by everything."""
    if convention.frozen == "ignore":
        needed = False
    elif phase == "forward":
        needed = training.lora is not None  # adapters run too
    else:
        raw_inputs = convention.input_gradient == "autograd" and any(
            visit.stream.source != "text" for visit in walk(tree)
        )
        needed = raw_inputs or not training.everything
    return plan(tree, training, convention.input_gradient) if needed else None


class _Batch(NamedTuple):
    text: list[int] | Long
    images: list[Grid]
    audios: list[int] | Long


def _amount(work: Work, stream: Stream, batch: _Batch) -> int:
    """A stream's work on a batch."""
    if stream.source == "image":
        return work.total_images(batch.images, stream)
    return work.total(_thinned(batch.text if stream.source == "text" else batch.audios, stream))


def _tokens(batch: _Batch) -> int:
    return sum(map(int, batch.text)) if isinstance(batch.text, list) else int(batch.text.values.sum())


def _thinned(lengths: list[int] | Long, stream: Stream) -> list[int] | Long:
    if stream == Stream(stream.source):
        return lengths
    if isinstance(lengths, list):
        return [stream.tokens(n) for n in lengths]
    return Long(stream.tokens(lengths.values), stream.tokens(lengths.longest))


class Breakdown:
    """Parts that sum exactly to the total, in fvcore's words."""

    def __init__(self, rows: list[tuple[str, str, int]]) -> None:
        self.rows = rows
        """(path, kind, FLOPs) of every parameter and mixer."""

    def total(self) -> int:
        """FLOPs of the batch; equal to the counter's own number."""
        return sum(flops for _, _, flops in self.rows)

    def by_kind(self) -> dict[str, int]:
        """FLOPs of each kind of work (linear, experts, head, attention, ...)."""
        kinds: dict[str, int] = {}
        for _, kind, flops in self.rows:
            kinds[kind] = kinds.get(kind, 0) + flops
        return kinds

    def by_module(self) -> dict[str, int]:
        """FLOPs of each module and everything under it; the whole model is ""."""
        modules: dict[str, int] = {"": 0}
        for path, _, flops in self.rows:
            parts = path.split(".")
            for depth in range(len(parts) + 1):
                name = ".".join(parts[:depth])
                modules[name] = modules.get(name, 0) + flops
        return modules


def estimate_flops(
    config: Any,
    seq_lens: Any,
    *,
    images: Any = None,
    audios: Any = None,
    convention: str | Convention = "standard",
    phase: Phase = "train",
    training: Training | None = None,
) -> int:
    """FLOPs of training (or of a forward pass) on documents of these lengths, exact.

    The arguments are those of `FlopCounter`; build one when the model is counted often.

    >>> estimate_flops({"model_type": "llama"}, [])
    0
    """
    return FlopCounter(config, convention, phase, training)(seq_lens, images, audios)
