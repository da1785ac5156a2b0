"""Altered configs of any type, from its schema alone: a newly added type is covered without new
test code.

Each alteration changes fields whose meaning their name tells (kv heads, biases, ties, windows,
experts, layer patterns), in the config and in its nested text config. All use few layers, so that
building the real model stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flopcalc.config import Schema
from flopcalc.survey import nested, shallow

Fields = dict[str, Any]

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts")
WIDTHS = (
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "ffn_dim",
    "ffn_hidden_size",
    "decoder_ffn_dim",
    "feed_forward_size",
    "dff",
    "dim_ff",
    "d_inner",
    "vocab_size",
)
WINDOWS = ("sliding_window", "window_size", "attention_chunk_size")
OLD_HEADS = (
    "n_head",
    "n_heads",
    "num_heads",
    "attention_heads",
    "decoder_attention_heads",
    "num_decoder_attention_heads",
)


def alterations(schema: type[Schema], base: Fields) -> Iterator[tuple[str, Fields]]:
    """(label, config) of every alteration that changes something for this type."""
    few_layers = shallow(schema, base)
    for alter in (
        tie,
        biases,
        one_kv_head,
        all_kv_heads,
        half_heads,
        wide_heads,
        windows,
        experts,
        widths,
        rotated_layers,
    ):
        altered = change(schema, few_layers, alter)
        if altered != few_layers:
            yield alter.__name__, altered
    if few_layers != base:
        yield "few_layers", few_layers


def change(schema: type[Schema], fields: Fields, alter: Callable[[Schema, Fields], Fields]) -> Fields:
    """The config with one alteration, in its nested text config too."""
    changed = dict(fields)
    for name, inner in nested(schema, changed).items():
        if "text" in name:
            changed[name] = change(inner, changed.get(name) or {}, alter)
    try:
        read = schema.read("altered", changed)
    except Exception:
        return fields
    return changed | alter(read, changed)


def unique(values: list[Any]) -> list[Any]:
    return [value for i, value in enumerate(values) if value not in values[:i]]


def tie(c: Schema, _: Fields) -> Fields:
    return {"tie_word_embeddings": not c.tie_word_embeddings} if hasattr(c, "tie_word_embeddings") else {}


def biases(c: Schema, _: Fields) -> Fields:
    return {name: not value for name, value in c if "bias" in name and isinstance(value, bool)}


def one_kv_head(c: Schema, _: Fields) -> Fields:
    return {"num_key_value_heads": 1} if getattr(c, "num_key_value_heads", 1) != 1 else {}


def all_kv_heads(c: Schema, _: Fields) -> Fields:
    heads, kv_heads = getattr(c, "num_attention_heads", None), getattr(c, "num_key_value_heads", None)
    return {"num_key_value_heads": heads} if kv_heads not in (None, heads) else {}


def half_heads(c: Schema, _: Fields) -> Fields:
    """Fewer and wider heads, in families whose every head has its own key and value."""
    return {name: getattr(c, name) // 2 for name in OLD_HEADS if hasattr(c, name)}


def wide_heads(c: Schema, _: Fields) -> Fields:
    """A head_dim of its own, apart from hidden_size / num_attention_heads."""
    return {"head_dim": c.head_dim + 64} if isinstance(getattr(c, "head_dim", None), int) else {}


def windows(c: Schema, _: Fields) -> Fields:
    changed: Fields = {name: 7 for name in WINDOWS if hasattr(c, name)}
    if hasattr(c, "use_sliding_window"):
        changed["use_sliding_window"] = True
    return changed


def experts(c: Schema, _: Fields) -> Fields:
    count = next((name for name in EXPERTS if getattr(c, name, None)), None)
    top_k = next((name for name in TOP_K if getattr(c, name, None)), None)
    if count is None or top_k is None:
        return {}
    groups = max(getattr(c, "n_group", None) or 1, 1)
    return {count: 2 * getattr(c, count) // groups * groups, top_k: max(1, getattr(c, top_k) - 1)}


def widths(c: Schema, _: Fields) -> Fields:
    return {name: getattr(c, name) + 64 for name in WIDTHS if isinstance(getattr(c, name, None), int)}


def rotated_layers(c: Schema, _: Fields) -> Fields:
    """The per-layer patterns turned by one, so that no layer keeps its default kind by position."""
    layers = getattr(c, "num_hidden_layers", None)
    return {
        name: value[1:] + value[:1]
        for name, value in c
        if name.endswith("types") and isinstance(value, list) and len(value) == layers and len(unique(value)) > 1
    }
