"""Aria's language model: routed experts beside shared ones in every layer."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    Decoder,
    attention,
    causal_lm,
    check_multiple,
    check_top_k,
    decoder_layer,
    experts,
    mlp,
    router,
)
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module


class AriaTextConfig(Decoder):
    intermediate_size: Size = 4096
    attention_bias: bool = False
    mlp_bias: bool = False
    moe_num_experts: Size = 8
    moe_topk: Size = 2
    moe_num_shared_experts: Size = 2

    def derive(self) -> None:
        super().derive()
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        check_top_k(self.moe_topk, self.moe_num_experts, "moe_topk")


@register("aria_text", AriaTextConfig)
def aria_text(c: AriaTextConfig) -> Module:
    hidden, width = c.hidden_size, c.intermediate_size
    sparse_mlp = Module(
        router=router(hidden, c.moe_num_experts),
        experts=experts(hidden, width, c.moe_num_experts, c.moe_topk, transposed=True),
        shared_experts=mlp(hidden, width * c.moe_num_shared_experts, bias=c.mlp_bias),
    ).reading("router", "experts", "shared_experts")
    layer = decoder_layer(hidden, self_attn=attention(c, Full(), bias=c.attention_bias), mlp=sparse_mlp)
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
