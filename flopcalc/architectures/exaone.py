"""EXAONE 3: llama in shape."""

from __future__ import annotations

from flopcalc.architectures.llama import LlamaConfig, llama
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register


class ExaoneConfig(LlamaConfig):
    vocab_size: Size = 102400
    intermediate_size: Size = 14336
    num_hidden_layers: Count = aliases("num_layers", "num_hidden_layers", default=32)
    num_key_value_heads: Size | None = 8


register("exaone", ExaoneConfig)(llama)
