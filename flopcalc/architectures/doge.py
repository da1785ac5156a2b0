"""Doge: attention whose values emit a decay, by which each query keeps the best `keep_window_size` keys
when there are more. Doge-MoE adds experts of one neuron each, found by a product of two short routers."""

from __future__ import annotations

from math import isqrt
from typing import Any

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, check_top_k, mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Span, TopK, Window
from flopcalc.tree import Layers, Linear, Module, Norm, Routed, Weight


class DogeConfig(Decoder):
    vocab_size: Size = 32768
    hidden_size: Size = 1024
    intermediate_size: Size = 2048
    num_attention_heads: Size = 8
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: Count | None = None
    keep_window_size: Size = 2048
    is_moe: bool = False
    num_experts: Size = 16384
    num_experts_per_tok: Size = 64

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_experts)

    def span(self) -> Span:
        keep = self.keep_window_size
        return Window(min(self.sliding_window, keep)) if self.sliding_window else TopK(keep)


def neuron_experts(c: DogeConfig) -> Module:
    """A gated MLP beside experts of one row in each of two look-up tables, which a token multiplies."""
    table = Module(weight=Weight((c.num_experts, c.hidden_size), "experts"))
    return (
        mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias)
        .holding(
            router_gate=Linear(c.hidden_size, 2 * isqrt(c.num_experts), kind="router"),
            **{"": Routed(c.num_experts, c.num_experts_per_tok, down_embed=table, up_embed=table)},
        )
        .reading("router_gate", "")
    )


@register("doge", DogeConfig)
def doge(c: DogeConfig) -> Module:
    hidden, kv_heads = c.hidden_size, c.num_key_value_heads
    decay: dict[str, Any] = {
        "dt_proj": Linear(kv_heads * c.head_dim, kv_heads, c.attention_bias),
        "A": Weight((kv_heads,)),
    }
    layer = Module(
        input_layernorm=Norm(hidden),
        self_attn=attention(c, c.span(), bias=c.attention_bias, qk_norm=True, **decay).reading(dt_proj="v_proj"),
        input_residual=Weight((hidden,)),
        post_attention_layernorm=Norm(hidden),
        mlp=neuron_experts(c) if c.is_moe else mlp(hidden, c.intermediate_size, bias=c.mlp_bias),
        post_attention_residual=Weight((hidden,)),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
