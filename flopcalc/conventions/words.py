"""Conventions in words: what each knob's value means, for `compare` and the documentation.

A step is a knob, or a group of kinds of parameters; two conventions differ by the steps between them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flopcalc.conventions.convention import Convention
from flopcalc.tree import Kind

__all__ = ["STEPS", "Step"]

_WORDS: dict[str, dict[Any, str]] = {
    "pairs": {
        "dense": "counts every (query, key) pair of a document",
        "half": "halves the attention core for causality",
        "exact": "counts causal pairs key by key",
        "masked": "counts the pairs that a mask throws away too",
        "none": "counts no attention core",
    },
    "window": {
        "follow": "counts sliding windows as windows",
        "ignore": "counts sliding windows as full attention",
        "exact": "counts the pairs of windows key by key",
        "continuous": "counts windows as the area that they cut out of the causal triangle",
        "unbounded": "counts a whole window for every token",
        "beyond": "counts the pairs of windows key by key, in documents longer than the window",
    },
    "chunk": {"follow": "counts chunks as chunks", "ignore": "counts chunked attention as full attention"},
    "sparse": {
        "follow": "counts the keys that an indexer picks",
        "ignore": "counts sparse attention as full attention",
        "exact": "counts the picked keys of sparse attention key by key",
        "continuous": "counts picked and compressed keys as the area that they cut out of the causal triangle",
        "unbounded": "counts all top-k keys for every token",
    },
    "latent_core": {
        "expanded": "counts latent attention with expanded keys and values",
        "query_width": "takes the query's width for both products of latent attention",
        "absorbed": "counts latent attention in its absorbed form",
    },
    "softmax": {None: "counts {after} FLOPs of mask and softmax per pair, head and pass"},
    "tied_head": {True: "counts a head that is tied to the embedding", False: "leaves out a tied head"},
    "head_multiple": {None: "pads the vocabulary to a multiple of {after}"},
    "head_norms": {
        "each_head": "counts the norm of query and key heads for every head",
        "weight": "counts the norm of query and key heads once",
    },
    "experts": {"all": "counts every expert, not the active ones", "active": "counts active experts alone"},
    "delta_state": {
        "value_value": "takes the delta rule's state as value_dim x value_dim",
        "key_value": "takes the delta rule's state as key_dim x value_dim",
    },
    "delta_backward": {False: "counts delta-rule layers forward only", True: "counts a backward of delta-rule layers"},
    "mamba2_width": {
        "twice_hidden": "takes the inner width of Mamba-2 as twice the hidden size",
        "model": "takes the inner width of Mamba-2 from the model",
    },
    "stream_mix": {
        True: "counts the mixing of hyper-connection streams",
        False: "leaves out the mixing of hyper-connection streams",
    },
    "stream_vectors": {None: "counts {after} FLOPs to read and write each number of the residual streams"},
    "indexer_weights": {
        "none": "leaves out the indexer's matrices",
        "forward": "counts the indexer's matrices forward only",
        "trained": "counts the indexer's matrices with a backward",
    },
    "indexer_scores": {
        "none": "leaves out the indexer's scores",
        "forward": "counts the indexer's scores forward only",
        "trained": "counts the indexer's scores with a backward",
    },
    "indexer_pairs": {
        "follow": "counts the indexer's pairs like those of attention",
        "dense": "counts every pair of the indexer",
        "exact": "counts the indexer's causal pairs key by key",
    },
    "indexer_head_sum": {
        True: "counts the sum over the indexer's heads",
        False: "leaves out the sum over the indexer's heads",
    },
    "towers": {
        "own_tokens": "counts towers on their own tokens",
        "text_tokens": "multiplies the weights of towers by the text's tokens",
        "none": "leaves out towers",
    },
    "merger_rows": {"patches": "runs mergers on every patch", "merged": "runs mergers on merged tokens"},
    "mtp": {
        "follow": "counts depths of multi-token prediction with their pass through the head",
        "layer": "counts depths of multi-token prediction without their pass through the head",
        "none": "counts no depths of multi-token prediction",
    },
    "frozen": {
        "ignore": "counts frozen weights and adapters as full training",
        "follow": "counts frozen weights and adapters as such",
    },
    "input_gradient": {
        "autograd": "counts input gradients only where autograd computes one",
        "always": "counts input gradients everywhere",
    },
}
"""Knob -> value -> what a convention with that value does; None is any value."""

_FACTORS = {
    "delta_rule": "the delta rule",
    "mamba2": "the Mamba-2 scan",
    "mamba": "the Mamba scan",
    "linear_attention": "linear attention",
}

_NOUNS: dict[Kind, str] = {
    "embedding": "the input embedding as a matmul",
    "norm": "norms",
    "head_norm": "norms of heads",
    "latent_norm": "norms of latents",
    "final_norm": "the final norm",
    "mtp_norm": "norms of depths of multi-token prediction",
    "bias": "biases",
    "vector": "single vectors",
    "router": "routers",
    "shared_gate": "gates of shared experts",
    "output_gate": "output gates of attention",
    "gated_query": "queries with an output gate",
    "conv": "convolution taps",
    "scan_conv": "convolution taps of Mamba layers",
    "stream_map": "hyper-connection maps",
    "patch_embedding": "the patch embedding",
    "mtp_projection": "projections into depths of multi-token prediction",
    "linear": "projections",
    "experts": "routed experts",
    "head": "the output head",
    "adapter": "adapters",
    "lookup": "other look-up tables as matmuls",
}
_SMALL: frozenset[Kind] = frozenset({"norm", "head_norm", "latent_norm", "final_norm", "mtp_norm", "bias", "vector"})


class Step(NamedTuple):
    """A knob, or (as `weights`) a group of kinds."""

    knob: str
    kinds: frozenset[Kind] = frozenset()

    def apply(self, before: Convention, after: Convention) -> Convention:
        """`before` with this one step taken towards `after`."""
        if self.knob == "weights":
            weights = before.weights - self.kinds | (after.weights & self.kinds)
            return before.changed(weights=weights) if weights != before.weights else before
        value = getattr(after, self.knob)
        return before.changed(**{self.knob: value}) if value != getattr(before, self.knob) else before

    def words(self, before: Convention, after: Convention) -> str:
        """What `after` does otherwise than `before`."""
        if self.knob == "weights":
            return _weights(
                self.kinds & (before.weights - after.weights), self.kinds & (after.weights - before.weights)
            )
        old, new = getattr(before, self.knob), getattr(after, self.knob)
        if self.knob in _FACTORS:
            noun = _FACTORS[self.knob]
            per = "training FLOPs per number of its state"
            return f"counts {noun} at {3 * new} instead of {3 * old} {per}" if new else f"counts no work of {noun}"
        values = _WORDS[self.knob]
        return values[new if new in values else None].format(after=new)


def _weights(removed: frozenset[Kind], added: frozenset[Kind]) -> str:
    parts = [("leaves out", removed), ("counts", added)]
    return " and ".join(f"{verb} {_listed(kinds)}" for verb, kinds in parts if kinds)


def _listed(kinds: frozenset[Kind]) -> str:
    if len(kinds & _SMALL) >= len(_SMALL) - 1:
        saved = "".join(f" save {_NOUNS[kind]}" for kind in _SMALL - kinds)
        return f"norms, biases and other vectors{saved}"
    nouns = [noun for kind, noun in _NOUNS.items() if kind in kinds]
    return nouns[0] if len(nouns) == 1 else f"{', '.join(nouns[:-1])} and {nouns[-1]}"


def _knobs(*names: str) -> list[Step]:
    return [Step(name) for name in names]


def _kinds(*kinds: Kind) -> list[Step]:
    return [Step("weights", frozenset({kind})) for kind in kinds]


STEPS: tuple[Step, ...] = (
    *_knobs("pairs", "window", "chunk", "sparse", "latent_core", "softmax"),
    *_kinds("embedding"),
    *_knobs("tied_head", "head_multiple", "experts"),
    *_kinds("router", "shared_gate", "output_gate"),
    Step("weights", _SMALL),
    *_knobs("head_norms"),
    *_kinds(
        "conv",
        "scan_conv",
        "stream_map",
        "patch_embedding",
        "mtp_projection",
        "linear",
        "gated_query",
        "experts",
        "head",
    ),
    *_kinds("adapter", "lookup"),
    *_knobs(*_FACTORS, "delta_state", "delta_backward", "mamba2_width", "stream_mix", "stream_vectors"),
    *_knobs("indexer_weights", "indexer_scores", "indexer_pairs", "indexer_head_sum"),
    *_knobs("towers", "merger_rows", "mtp", "frozen", "input_gradient"),
)
"""Every way in which two conventions can differ, those first that explain most."""
