"""InternLM 3: llama in shape, with older names for its bias switches."""

from __future__ import annotations

from flopcalc.architectures.llama import LlamaConfig, llama
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register


class InternLM3Config(LlamaConfig):
    vocab_size: Size = 128512
    intermediate_size: Size = 10240
    num_hidden_layers: Count = 48
    num_key_value_heads: Size | None = 2
    head_dim: Size | None = 128
    attention_bias: bool = aliases("qkv_bias", "attention_bias", default=False)
    mlp_bias: bool = aliases("bias", "mlp_bias", default=False)


register("internlm3", InternLM3Config)(llama)
