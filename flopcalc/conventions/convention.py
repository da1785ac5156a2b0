"""The knobs of a convention: the few ways in which the FLOP counters of the field really differ."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from flopcalc.config import Size
from flopcalc.options import Options
from flopcalc.tree import Kind

__all__ = ["Convention"]

Factor = Annotated[int, Field(ge=0)]
Knobs = dict[str, Any]
Overrides = dict[str, Knobs]


class Convention(Options):
    """The rules of one way to count FLOPs: a value. Derive one's own with `changed()`.

    Args:
        name: what it is called; `summary` says it in a line, `source` names framework, file and date.
        overrides: knobs that a framework sets for single model types alone.
        printed: knobs that turn the rule into the printed number where a known fault of the counter
            separates the two (see `as_printed`).

    Every other field is a knob.
    """

    name: str
    summary: str
    source: str = ""

    # --- weights ---
    weights: frozenset[Kind]
    """Kinds of parameters that count, at 2 FLOPs per parameter, token and pass; with `embedding`
    the look-up counts as a matmul. A `gated_query` counts half without `output_gate`."""
    tied_head: bool = True
    """Whether a head that shares the embedding's matrix counts."""
    head_multiple: Size = 1
    """The head counts with its vocabulary padded to a multiple of this."""
    experts: Literal["active", "all"] = "active"
    head_norms: Literal["weight", "each_head"] = "weight"
    """Whether the norm of query or key heads counts its weight once or for each head."""

    # --- the attention core ---
    pairs: Literal["dense", "half", "exact", "masked", "none"]
    """(query, key) pairs of causal attention: see `spans.py`; `half` is dense / 2, `none` no core."""
    window: Literal["follow", "ignore", "exact", "continuous", "unbounded", "beyond"] = "follow"
    """Pairs of sliding windows: by the rule `pairs`, as full attention, or by a rule of their own."""
    chunk: Literal["follow", "ignore"] = "follow"
    """Pairs of chunks."""
    sparse: Literal["follow", "ignore", "exact", "continuous", "unbounded"] = "follow"
    """Pairs of the keys that an indexer picks, and of compressed entries."""
    latent_core: Literal["expanded", "query_width", "absorbed"] = "expanded"
    """Widths of latent attention's two products: qk_dim and v_dim, qk_dim twice, or those of the
    form that absorbs kv_b_proj."""
    softmax: Factor = 0
    """FLOPs of mask and softmax per pair, head and pass."""

    # --- recurrences: FLOPs per token, number of the state and pass ---
    delta_rule: Factor = 6
    delta_state: Literal["key_value", "value_value"] = "key_value"
    """Whether a delta-rule head's state counts as key_dim x value_dim or value_dim x value_dim."""
    delta_backward: bool = True
    """Whether layers of the delta rule, their matrices too, count with a backward pass."""
    mamba2: Factor = 4
    mamba2_width: Literal["model", "twice_hidden"] = "model"
    """Whether a Mamba-2 layer counts at its own inner width, or at twice the hidden size."""
    mamba: Factor = 4
    linear_attention: Factor = 4

    # --- hyper-connections ---
    stream_mix: bool = False
    """Whether products of hyper-connection maps with the residual streams count."""
    stream_vectors: Factor = 0
    """FLOPs per number of the residual streams, for reading and writing them."""

    # --- indexers of sparse attention: they run without gradient ---
    indexer_weights: Literal["none", "forward", "trained"] = "forward"
    indexer_scores: Literal["none", "forward", "trained"] = "forward"
    indexer_pairs: Literal["follow", "dense", "exact"] = "follow"
    """Pairs of indexer scores, where they do not follow `pairs`."""
    indexer_head_sum: bool = False
    """Whether the weighted sum over an indexer's heads counts, as one more number of their width."""

    # --- towers ---
    towers: Literal["own_tokens", "text_tokens", "none"] = "own_tokens"
    """Whether the weights of vision and audio towers meet patches and frames, or the text's tokens,
    or do not count; without `own_tokens` towers have no attention."""
    merger_rows: Literal["merged", "patches"] = "merged"
    """Whether mergers meet merged tokens or every patch."""

    # --- depths of multi-token prediction, where they are trained ---
    mtp: Literal["follow", "layer", "none"] = "follow"
    """Whether depths count, and their pass through the output head (without it under `layer`)."""

    # --- training ---
    input_gradient: Literal["always", "autograd"] = "always"
    """Where input gradients count: see `training.py`."""
    frozen: Literal["follow", "ignore"] = "follow"
    """Whether frozen weights and LoRA count as such, or as full training without adapters."""

    overrides: Overrides = Field(default_factory=dict)
    printed: Knobs = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_changes(self) -> Convention:
        for knobs in filter(None, (*self.overrides.values(), self.printed)):
            self.changed(overrides={}, printed={}, **knobs)
        return self

    def __hash__(self) -> int:
        return hash(self.name)

    def changed(self, **knobs: Any) -> Convention:
        """This convention with some knobs set anew. Raises InvalidOption.

        >>> import flopcalc
        >>> flopcalc.CONVENTIONS["standard"].changed(name="causal", pairs="exact").pairs
        'exact'
        """
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **knobs})

    def for_model(self, model_type: str | None) -> Convention:
        """This convention as it counts that type."""
        knobs = self.overrides.get(model_type or "")
        return self.changed(overrides={}, **knobs) if knobs else self

    @property
    def as_printed(self) -> Convention:
        """The same with its framework's known faults, where those take no more than a knob."""
        return self.changed(**self.printed)
