"""Multi-token prediction: extra depths behind the last layer, each of which predicts one token further.

transformers leaves them out of its models (`modeling_layers.MtpLayer` builds them on their own), and
so does `describe` unless it is asked: each depth is a subtree `mtp.layers.<i>` that an architecture
states under `register_mtp`. A depth ends in a pass through the model's own output head, which is
counted once more or, on request, not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flopcalc.errors import InvalidOption
from flopcalc.tree import Layers, Linear, Module, Node, Norm

__all__ = ["knows_depths", "next_token_depth", "register_mtp", "with_mtp"]

_FIELDS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")


_registered: dict[str, Callable[[Any], Module]] = {}


def register_mtp(model_type: str) -> Callable[[Callable[[Any], Module]], Callable[[Any], Module]]:
    """Decorate a function (schema instance -> one depth, without the head) for `model_type`."""

    def decorate(build: Callable[[Any], Module]) -> Callable[[Any], Module]:
        _registered[model_type] = build
        return build

    return decorate


def knows_depths(model_type: str) -> bool:
    """Whether the depths of a type, whose file is imported, are registered."""
    return model_type in _registered


def next_token_depth(hidden: int, block: Node) -> Module:
    """A depth as DeepSeek-V3 has it (arXiv 2412.19437, section 2.2): the hidden state and the next
    token's embedding, each through a norm, side by side through one matrix into a layer."""
    return Module(
        enorm=Norm(hidden, "mtp_norm"),
        hnorm=Norm(hidden, "mtp_norm"),
        eh_proj=Linear(2 * hidden, hidden, kind="mtp_projection"),
        mtp_block=block,
        post_norm=Norm(hidden, "mtp_norm"),
    )


def with_mtp(tree: Module, config: Any, fields: Mapping[str, Any], depths: bool | int, *, head: bool) -> Module:
    """A described model with its depths behind it.

    Args:
        config: what the architecture's schema read.
        fields: the raw config, which says how many depths there are where `depths` is True.
        head: whether each depth ends in a pass through the output head.

    Raises InvalidOption for a model whose depths are not known, or number none.
    """
    build = _registered.get(tree.model_type or "")
    if build is None:
        raise InvalidOption(
            f"mtp: found {depths!r} for model_type {tree.model_type!r}, whose depths are not known; "
            f"known are those of {', '.join(sorted(_registered))}"
        )
    number = _published(fields) if depths is True else depths
    if number < 1:
        raise InvalidOption(
            f"mtp: found {depths!r}, and {number} depths in the config ({', '.join(_FIELDS)}); "
            f"pass their number, as mtp=1"
        )
    depth = build(config)
    if head:
        again = Module(**{"": dict(tree.children)["lm_head"]}).sharing("lm_head")
        depth = depth.holding(shared_head=again)
    return tree.holding(mtp=Module(layers=Layers([depth] * number))).reading(mtp="model")


def _published(fields: Mapping[str, Any]) -> int:
    """The number of depths that a config states, in itself or in its text_config."""
    for part in (fields, fields.get("text_config") or {}):
        for name in _FIELDS:
            if isinstance(number := part.get(name), int):
                return number
    return 0
