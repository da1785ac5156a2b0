"""MiMo: Qwen2 with a depth of multi-token prediction, which the language model itself does not run. The
structure is that of the published `modeling_mimo.py`."""

from __future__ import annotations

from flopcalc.architectures.qwen2 import Qwen2Config, qwen2, qwen2_layers
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.mtp import next_token_depth, register_mtp
from flopcalc.tree import Module


class MiMoConfig(Qwen2Config):
    vocab_size: Size = 151680
    num_hidden_layers: Count = 36
    num_key_value_heads: Size | None = 8


register("mimo", MiMoConfig)(qwen2)


@register_mtp("mimo")
def mimo_mtp(c: MiMoConfig) -> Module:
    [layer, *_] = [layer for _, layer in qwen2_layers(c).children]
    return next_token_depth(c.hidden_size, layer)
