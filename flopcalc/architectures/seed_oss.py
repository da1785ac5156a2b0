"""Seed-OSS: llama with its own bias switch for the output projection."""

from __future__ import annotations

from flopcalc.architectures.blocks import attention, causal_lm, decoder_layer, mlp
from flopcalc.architectures.llama import LlamaConfig
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module


class SeedOssConfig(LlamaConfig):
    vocab_size: Size = 155136
    intermediate_size: Size = 27648
    num_hidden_layers: Count = 64
    num_attention_heads: Size = 80
    num_key_value_heads: Size | None = 8
    head_dim: Size | None = 128
    attention_bias: bool = True
    attention_out_bias: bool = False


@register("seed_oss", SeedOssConfig)
def seed_oss(c: SeedOssConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), bias=c.attention_bias, o_bias=c.attention_out_bias),
        mlp=mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
