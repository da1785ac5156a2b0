"""Sarvam: sarvam_moe is GLM-4.5 in shape, sarvam_mla is DeepSeek-V3."""

from __future__ import annotations

from flopcalc.architectures.deepseek import LatentMoe, deepseek_v3
from flopcalc.architectures.glm4 import Glm4MoeConfig, glm4_moe
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register


class SarvamMoeConfig(Glm4MoeConfig):
    vocab_size: Size = 262144
    intermediate_size: Size = 8192
    num_hidden_layers: Count = 19
    num_attention_heads: Size = 64
    num_key_value_heads: Size = 4
    head_dim: Size = 64
    attention_bias: bool = aliases("use_qkv_bias", "attention_bias", default=False)
    use_qk_norm: bool = True
    moe_intermediate_size: Size = 1024
    n_routed_experts: Size = aliases("num_experts", "num_local_experts", "n_routed_experts", default=128)
    n_shared_experts: Count = aliases("num_shared_experts", "n_shared_experts", default=1)
    num_experts_per_tok: Size = 6


class SarvamMlaConfig(LatentMoe):
    vocab_size: Size = 262144
    hidden_size: Size = 4096
    intermediate_size: Size = 16384
    num_hidden_layers: Count = 32
    num_attention_heads: Size = 64
    q_lora_rank: Size | None = None
    first_k_dense_replace: Count = 1
    n_routed_experts: Size = aliases("num_experts", "num_local_experts", "n_routed_experts", default=128)
    n_shared_experts: Count = aliases("num_shared_experts", "n_shared_experts", default=1)


register("sarvam_moe", SarvamMoeConfig)(glm4_moe)
register("sarvam_mla", SarvamMlaConfig)(deepseek_v3)
