"""FLOPs of generating text with a key-value cache: forward passes that compute only what is new.

A prefill runs n tokens on m cached ones, a decode step one token on all before it. A query reads the
keys that its span lets it see at its position (windows and top-k capped, compressed entries as they
close); a recurrence costs the same at every token; the head runs where logits are wanted. Everything
is a difference of two closed forms, so that a million steps cost what one does.

    >>> from flopcalc import FlopCounter
    >>> counter = FlopCounter({"model_type": "llama"}, "exact", "forward")
    >>> prefill_flops(counter, 100, logits="all") == counter([100])
    True
    >>> decode_flops(counter, 100, 2) == decode_flops(counter, 100, 1) + decode_flops(counter, 101, 1)
    True

A decode step counts key by key under every convention; a prefill follows the convention's own pairs:
`dense` lets each new query read as many keys as the last one does, the others count what the whole
costs beyond its cached part. Latent attention (MLA) counts as it is trained, its keys and values
expanded once and cached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

from flopcalc.batch import read_lengths
from flopcalc.conventions import Convention
from flopcalc.counting import FlopCounter, Term, gather
from flopcalc.errors import InvalidBatch, InvalidOption
from flopcalc.spans import Bidirectional, BidirectionalWindow
from flopcalc.training import Training
from flopcalc.tree import Stream
from flopcalc.work import Work

__all__ = ["decode_flops", "prefill_flops", "rollout_flops"]

Logits = Literal["last", "all", "none"]


def prefill_flops(
    model: Any,
    new_tokens: Any,
    cached_tokens: Any = 0,
    *,
    logits: Logits = "last",
    images: Any = None,
    audios: Any = None,
    convention: str | Convention = "standard",
    training: Training | None = None,
) -> int:
    """FLOPs of running `new_tokens` of each document on `cached_tokens` that are there already.

    Args:
        model: a `FlopCounter`, whose convention and adapters count, or a config as it takes one.
        new_tokens, cached_tokens: tokens of one document, or of each of several.
        logits: where the output head runs: at the last token of each document, at all, or at none.
        images, audios: what the towers read, as for `FlopCounter`.
        convention, training: for a config (a Lora in `training` runs beside the weights).

    Raises InvalidBatch or InvalidOption.
    """
    if logits not in get_args(Logits):
        raise InvalidOption(f"logits: found {logits!r}, expected 'last', 'all' or 'none'")
    counter, documents = _counter(model, convention, training), _documents(new_tokens, cached_tokens)
    costs = _costs(counter, cached=any(cached for _, cached in documents))
    heads = {"last": sum(new > 0 for new, _ in documents), "all": sum(new for new, _ in documents), "none": 0}
    return (
        sum(costs.prefill(new, cached) for new, cached in documents)
        + costs.head * heads[logits]
        + (0 if images is None and audios is None else counter([], images, audios))
    )


def decode_flops(
    model: Any,
    cached_tokens: Any,
    new_tokens: Any,
    *,
    convention: str | Convention = "standard",
    training: Training | None = None,
) -> int:
    """FLOPs of `new_tokens` decode steps of each document, the first of which feeds one token after
    `cached_tokens`; every step computes logits. The other arguments are those of `prefill_flops`.

    Raises InvalidBatch or InvalidOption.
    """
    costs = _costs(_counter(model, convention, training), cached=True)
    return sum(costs.decode(new, cached) + costs.head * new for new, cached in _documents(new_tokens, cached_tokens))


def rollout_flops(
    model: Any,
    prompts: Any,
    responses: Any,
    *,
    images: Any = None,
    audios: Any = None,
    convention: str | Convention = "standard",
    training: Training | None = None,
) -> int:
    """FLOPs of generating responses to prompts: each prompt is prefilled once, the first token of a
    response comes out of its logits, and the last one is never fed back.

    Args:
        prompts: tokens of each prompt, or of one.
        responses: tokens of the response to each, or of each of several responses to each.

    The other arguments are those of `prefill_flops`. Raises InvalidBatch or InvalidOption.

    >>> rollout_flops({"model_type": "llama"}, [100], [[1, 1]]) == prefill_flops({"model_type": "llama"}, 100)
    True
    """
    counter, cached = _counter(model, convention, training), _lengths(prompts, "prompts")
    groups = [_lengths(group, f"responses[{i}]") for i, group in enumerate(_each(responses))]
    if len(groups) != len(cached):
        raise InvalidBatch(f"responses: found those of {len(groups)} prompts, expected {len(cached)}")
    steps = [(length - 1, prompt) for prompt, group in zip(cached, groups, strict=True) for length in group if length]
    new_tokens, cached_tokens = [new for new, _ in steps], [prompt for _, prompt in steps]
    prefill = prefill_flops(counter, cached, images=images, audios=audios)
    return prefill + decode_flops(counter, cached_tokens, new_tokens)


class _Costs(NamedTuple):
    """The forward work of a model on text by stream, the head apart."""

    own: dict[Stream, Work]
    """Under the convention's own pairs."""
    key_by_key: dict[Stream, Work]
    head: int
    """FLOPs of the output head at one token."""
    wide: bool
    """Whether a new query counts as reading what the last one reads."""

    def prefill(self, new: int, cached: int) -> int:
        return sum(
            work.beyond(_seen(stream, cached), _seen(stream, cached + new), wide=self.wide)
            for stream, work in self.own.items()
        )

    def decode(self, new: int, cached: int) -> int:
        return sum(
            work.beyond(_seen(stream, cached), _seen(stream, cached + new), wide=False)
            for stream, work in self.key_by_key.items()
        )


def _seen(stream: Stream, tokens: int) -> int:
    """Tokens of the stream once `tokens` of the text are there."""
    return int(stream.tokens(tokens)) if tokens else 0


def _counter(model: Any, convention: str | Convention, training: Training | None) -> FlopCounter:
    if not isinstance(model, FlopCounter):
        return FlopCounter(model, convention, "forward", training)
    return model if model.phase == "forward" else FlopCounter(model.tree, model.convention, "forward", model.training)


def _key_by_key(convention: Convention) -> Convention:
    """The same with exact pairs, where it has pairs and follows windows at all."""
    rules = {name: "follow" for name in ("window", "sparse") if getattr(convention, name) != "ignore"}
    pairs = convention.pairs if convention.pairs == "none" else "exact"
    return convention.changed(pairs=pairs, indexer_pairs="follow", **rules)


def _costs(counter: FlopCounter, *, cached: bool) -> _Costs:
    rules = counter.convention.for_model(getattr(counter.tree, "model_type", None))
    exact = FlopCounter(counter.tree, _key_by_key(rules), "forward", counter.training)
    found = [term for term in counter.terms() if _generates(term)]
    if cached and any(isinstance(term.span, (Bidirectional, BidirectionalWindow)) for term in found):
        raise InvalidOption("generation: this model reads its text in both directions, so nothing of it can be cached")
    return _Costs(
        gather(term for term in found if term.kind != "head"),
        gather(term for term in exact.terms() if _generates(term) and term.kind != "head"),
        sum(term.flops for term in found if term.kind == "head"),
        wide=counter.convention.pairs in ("dense", "masked"),
    )


def _generates(term: Term) -> bool:
    """Whether a part runs for every new token; depths of multi-token prediction are for training."""
    return term.stream.source == "text" and not term.path.startswith("mtp.")


def _documents(new_tokens: Any, cached_tokens: Any) -> list[tuple[int, int]]:
    """(new, cached) tokens of each document."""
    new, cached = _lengths(new_tokens, "new_tokens"), _lengths(cached_tokens, "cached_tokens")
    if len(cached) == 1 and not isinstance(cached_tokens, Iterable):
        cached = cached * len(new)
    if len(new) != len(cached):
        raise InvalidBatch(f"cached_tokens: found {len(cached)} numbers, expected {len(new)}, one for each document")
    return list(zip(new, cached, strict=True))


def _each(tokens: Any) -> Iterable[Any]:
    return tokens if isinstance(tokens, Iterable) else [tokens]


def _lengths(tokens: Any, name: str) -> list[int]:
    read = read_lengths(_each(tokens), name)
    return [int(n) for n in (read if isinstance(read, list) else read.values)]
