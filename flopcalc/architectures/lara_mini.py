"""Lara Mini: gated delta rule, windows and full attention in turn; small experts beside one shared
expert without a gate."""

from __future__ import annotations

from typing import ClassVar

from flopcalc.architectures.blocks import (
    TypedDecoder,
    attention,
    causal_lm,
    check_multiple,
    check_top_k,
    decoder_layer,
    each,
    mlp,
    moe,
)
from flopcalc.architectures.qwen3_5 import delta_net
from flopcalc.architectures.qwen3_next import DeltaNet
from flopcalc.config import Count, Size, legacy
from flopcalc.estimators import register
from flopcalc.tree import Module


class LaraMiniConfig(TypedDecoder, DeltaNet):
    known_layer_types: ClassVar[tuple[str, ...]] = ("linear_attention", "sliding_attention", "full_attention")

    vocab_size: Size = 151936
    hidden_size: Size = 1024
    intermediate_size: Size = legacy(1)  # no layer is dense
    num_hidden_layers: Count = 34
    num_attention_heads: Size = 16
    num_key_value_heads: Size | None = 4
    head_dim: Size = 128
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    sliding_window: Count | None = 512
    linear_num_key_heads: Size = 8
    linear_num_value_heads: Size = 16
    moe_intermediate_size: Size = 512
    shared_expert_intermediate_size: Size = 512
    num_experts: Size = 128
    num_experts_per_tok: Size = 4

    def default_layer_types(self) -> list[str]:
        linear, sliding, full = self.known_layer_types
        pattern = (linear, sliding, linear, full, sliding)
        return [pattern[i % len(pattern)] for i in range(self.num_hidden_layers)]

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_experts)
        check_multiple("num_attention_heads", self.num_attention_heads, "num_key_value_heads", self.num_key_value_heads)


@register("lara_mini", LaraMiniConfig)
def lara_mini(c: LaraMiniConfig) -> Module:
    hidden, shared = c.hidden_size, mlp(c.hidden_size, c.shared_expert_intermediate_size)
    experts = moe(hidden, c.moe_intermediate_size, c.num_experts, c.num_experts_per_tok, shared_expert=shared)

    def layer(kind: str) -> Module:
        linear = kind == "linear_attention"
        return decoder_layer(
            hidden,
            linear_attn=delta_net(c) if linear else None,
            self_attn=None if linear else attention(c, c.span(kind), bias=c.attention_bias, qk_norm=True),
            mlp=experts,
        )

    return causal_lm(c, each(layer, c.layer_types))
