"""Phi-3.5-MoE: experts in every layer, LayerNorms, one window on all layers or none. Its router,
SparseMixer, picks two experts whatever `num_experts_per_tok` says."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, decoder_layer, experts, window
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import LayerNorm, Layers, Linear, Module


class PhimoeConfig(Decoder):
    vocab_size: Size = 32064
    intermediate_size: Size = 6400
    num_key_value_heads: Size | None = 8
    sliding_window: Count | None = None
    num_local_experts: Size = 16
    attention_bias: bool = False
    lm_head_bias: bool = False


@register("phimoe", PhimoeConfig)
def phimoe(c: PhimoeConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        norm=LayerNorm,
        self_attn=attention(c, window(c.sliding_window), bias=c.attention_bias),
        mlp=Module(
            router=Linear(c.hidden_size, c.num_local_experts, kind="router"),
            experts=experts(c.hidden_size, c.intermediate_size, c.num_local_experts, top_k=2),
        ).reading("router", "experts"),
    )
    layers = Layers([layer] * c.num_hidden_layers)
    return causal_lm(c, layers, head_bias=c.lm_head_bias, norm=LayerNorm(c.hidden_size))
