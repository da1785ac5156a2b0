"""Ministral 3: mistral in shape."""

from __future__ import annotations

from flopcalc.architectures.mistral import MistralConfig, mistral
from flopcalc.config import Count, Size
from flopcalc.estimators import register


class Ministral3Config(MistralConfig):
    vocab_size: Size = 131072
    num_hidden_layers: Count = 34
    head_dim: Size | None = 128
    sliding_window: Count | None = None


register("ministral3", Ministral3Config)(mistral)
