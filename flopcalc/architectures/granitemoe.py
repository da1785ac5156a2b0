"""Granite MoE: llama's attention, experts in every layer; an MLP shared by all tokens beside them in
granitemoeshared and granitemoe_swa, which has windows and attention sinks too."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    Decoder,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    each,
    experts,
    router,
)
from flopcalc.architectures.granite import GraniteWindows
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Linear, Module, Weight


class GraniteMoeConfig(Decoder):
    attention_bias: bool = False
    num_local_experts: Size = 8
    num_experts_per_tok: Size = 2

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_local_experts)


def granitemoe_layer(c: GraniteMoeConfig, self_attn: Module, shared: int = 0) -> Module:
    hidden = c.hidden_size
    return decoder_layer(
        hidden,
        self_attn=self_attn,
        block_sparse_moe=Module(
            router=router(hidden, c.num_local_experts),
            experts=experts(hidden, c.intermediate_size, c.num_local_experts, c.num_experts_per_tok),
        ).reading("router", "experts"),
        shared_mlp=Module(input_linear=Linear(hidden, 2 * shared), output_linear=Linear(shared, hidden))
        if shared
        else None,
    ).reading(shared_mlp="post_attention_layernorm")


@register("granitemoe", GraniteMoeConfig)
def granitemoe(c: GraniteMoeConfig) -> Module:
    layer = granitemoe_layer(c, attention(c, Full(), bias=c.attention_bias))
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))


class GraniteMoeSharedConfig(GraniteMoeConfig):
    shared_intermediate_size: Count = 0


def granitemoeshared(c: GraniteMoeSharedConfig) -> Module:
    layer = granitemoe_layer(c, attention(c, Full(), bias=c.attention_bias), c.shared_intermediate_size)
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))


class GraniteMoeSwaConfig(GraniteWindows, GraniteMoeSharedConfig):
    pass


@register("granitemoe_swa", GraniteMoeSwaConfig)
def granitemoe_swa(c: GraniteMoeSwaConfig) -> Module:
    def layer(kind: str) -> Module:
        sinks = Weight((c.num_attention_heads,))
        self_attn = attention(c, c.span(kind), bias=c.attention_bias, sinks=sinks)
        return granitemoe_layer(c, self_attn, c.shared_intermediate_size)

    return causal_lm(c, each(layer, c.layer_types))
