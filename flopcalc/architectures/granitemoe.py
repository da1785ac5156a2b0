"""Granite MoE: llama's attention, experts in every layer."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, check_top_k, decoder_layer, experts
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Linear, Module


class GraniteMoeConfig(Decoder):
    attention_bias: bool = False
    num_local_experts: Size = 8
    num_experts_per_tok: Size = 2

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_local_experts)


@register("granitemoe", GraniteMoeConfig)
def granitemoe(c: GraniteMoeConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), bias=c.attention_bias),
        block_sparse_moe=Module(
            router=Linear(c.hidden_size, c.num_local_experts, kind="router"),
            experts=experts(c.hidden_size, c.intermediate_size, c.num_local_experts, c.num_experts_per_tok),
        ).reading("router", "experts"),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
