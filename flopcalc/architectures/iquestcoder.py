"""IQuest-Coder: llama in shape."""

from __future__ import annotations

from flopcalc.architectures.llama import LlamaConfig, llama
from flopcalc.config import Count, Size
from flopcalc.estimators import register


class IQuestCoderConfig(LlamaConfig):
    vocab_size: Size = 76800
    hidden_size: Size = 5120
    intermediate_size: Size = 27648
    num_hidden_layers: Count = 80
    num_attention_heads: Size = 40
    num_key_value_heads: Size | None = 8
    head_dim: Size | None = 128


register("iquestcoder", IQuestCoderConfig)(llama)
