"""Mistral 4: DeepSeek-V3 in shape."""

from __future__ import annotations

from flopcalc.architectures.deepseek import LatentMoe, deepseek_v3
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register


class Mistral4Config(LatentMoe):
    vocab_size: Size = 131072
    hidden_size: Size = 4096
    intermediate_size: Size = 12288
    num_hidden_layers: Count = 36
    num_attention_heads: Size = 32
    q_lora_rank: Size | None = 1024
    kv_lora_rank: Size = 256
    qk_nope_head_dim: Size = 64
    first_k_dense_replace: Count = 0
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=128)
    num_experts_per_tok: Size = 4


register("mistral4", Mistral4Config)(deepseek_v3)
