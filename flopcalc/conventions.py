"""How to count: each convention is a frozen value, data and no code.

The knobs are those in which the counters of the field really differ; `docs/conventions.md` holds
the rules of each framework with its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from flopcalc.errors import InvalidOption
from flopcalc.tree import LOOKUP_KINDS, MATMUL_KINDS, Kind

__all__ = ["CONVENTIONS", "Convention", "get_convention"]


class Convention(BaseModel):
    """The rules of one way to count FLOPs. Derive one's own with `changed()`.

    The recurrences cost `factor * heads * key_dim * value_dim` FLOPs per token in a forward pass
    (state read, correction and read-out as multiply-adds); training runs three passes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    summary: str
    weights: frozenset[Kind]
    """Kinds of parameters counted at 2 FLOPs per parameter, token and pass."""
    pairs: Literal["dense", "half", "exact", "masked"]
    """(query, key) pairs of causal attention: see `spans.py`; `half` is dense / 2."""
    window: Literal["follow", "ignore"] = "follow"
    """`ignore` counts windows and chunks as full attention."""
    delta_rule: int = 6
    mamba2: int = 4
    mamba: int = 4
    linear_attention: int = 4
    stream_mix: bool = False
    """Whether products of hyper-connection maps with the residual streams count."""
    input_gradient: Literal["always", "autograd"] = "always"
    """Where input gradients count: see `training.py`."""
    indexer_scores: Literal["forward", "trained"] = "forward"
    indexer_weights: Literal["forward", "trained"] = "forward"
    """Sparse-attention indexers run without gradient; `trained` counts them with a backward."""

    def changed(self, **knobs: Any) -> Convention:
        """This convention with some knobs set anew (validated).

        >>> CONVENTIONS["standard"].changed(name="causal", pairs="exact").pairs
        'exact'
        """
        return type(self).model_validate({**self.model_dump(), **knobs})


ALL_BUT_EMBEDDING: frozenset[Kind] = frozenset(get_args(Kind)) - LOOKUP_KINDS

_PRESETS = (
    Convention(
        name="standard",
        summary="torchtitan's rules per document: 6 FLOPs per active parameter, dense pairs, indexer forward only",
        weights=ALL_BUT_EMBEDDING,
        pairs="dense",
        indexer_weights="trained",
    ),
    Convention(
        name="torchtitan",
        summary="torchtitan main (since 2026-09): as standard, the indexer with a backward",
        weights=ALL_BUT_EMBEDDING,
        pairs="dense",
        indexer_scores="trained",
        indexer_weights="trained",
    ),
    Convention(
        name="torchtitan_0_3",
        summary="torchtitan 0.3.0: windows counted as full attention, recurrences not at all",
        weights=ALL_BUT_EMBEDDING,
        pairs="dense",
        window="ignore",
        delta_rule=0,
        mamba2=0,
        mamba=0,
        linear_attention=0,
        indexer_scores="trained",
        indexer_weights="trained",
    ),
    Convention(
        name="matmul-dense",
        summary="matrix weights only, dense pairs (windows n*min(n, w))",
        weights=MATMUL_KINDS,
        pairs="dense",
        stream_mix=True,
        input_gradient="autograd",
    ),
    Convention(
        name="exact",
        summary="matrix weights only, causal pairs key by key: what a perfect kernel runs",
        weights=MATMUL_KINDS,
        pairs="exact",
        stream_mix=True,
        input_gradient="autograd",
    ),
)

CONVENTIONS: Mapping[str, Convention] = MappingProxyType({preset.name: preset for preset in _PRESETS})


def get_convention(convention: str | Convention) -> Convention:
    """The preset of that name, or the value itself.

    Raises InvalidOption for a name that is no preset.
    """
    if isinstance(convention, Convention):
        return convention
    try:
        return CONVENTIONS[convention]
    except (KeyError, TypeError):
        raise InvalidOption(
            f"convention: found {convention!r}, expected one of {', '.join(CONVENTIONS)} or a Convention value"
        ) from None
