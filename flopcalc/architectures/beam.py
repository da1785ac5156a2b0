"""Beam: an output gate on attention with a bias per head, norms on both sides of attention and MLP,
dense layers first and then experts without shared ones."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    SparseLayers,
    TypedDecoder,
    attention,
    causal_lm,
    check_multiple,
    check_top_k,
    each,
    every_nth_full,
    mlp,
    moe,
)
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module, Norm, Weight


class BeamConfig(TypedDecoder, SparseLayers):
    leading_dense = 3

    vocab_size: Size = 151936
    hidden_size: Size = 5120
    intermediate_size: Size = 20480
    num_hidden_layers: Count = 52
    num_attention_heads: Size = 48
    num_key_value_heads: Size | None = 8
    head_dim: Size = 128
    attention_bias: bool = False
    sliding_window: Count | None = 512
    moe_intermediate_size: Size = 2560
    num_experts: Size = 256
    num_experts_per_tok: Size = 8

    def default_layer_types(self) -> list[str]:
        return [*every_nth_full(self.num_hidden_layers, 6)[:-1], "full_attention"]

    def derive(self) -> None:
        super().derive()
        check_multiple("num_attention_heads", self.num_attention_heads, "num_key_value_heads", self.num_key_value_heads)
        check_top_k(self.num_experts_per_tok, self.num_experts)


@register("beam", BeamConfig)
def beam(c: BeamConfig) -> Module:
    hidden, heads = c.hidden_size, c.num_attention_heads
    gate = {"gate_proj": Linear(hidden, heads * c.head_dim, kind="output_gate"), "gate_bias": Weight((heads,), "bias")}

    def layer(kind: tuple[str, str]) -> Module:
        attends, mlp_type = kind
        return Module(
            input_layernorm=Norm(hidden),
            self_attn=attention(c, c.span(attends), bias=c.attention_bias, qk_norm=True, after_core=gate).reading(
                "gate_proj"
            ),
            post_attention_layernorm=Norm(hidden),
            pre_feedforward_layernorm=Norm(hidden),
            mlp=mlp(hidden, c.intermediate_size)
            if mlp_type == "dense"
            else moe(hidden, c.moe_intermediate_size, c.num_experts, c.num_experts_per_tok),
            post_feedforward_layernorm=Norm(hidden),
        )

    return causal_lm(c, each(layer, zip(c.layer_types, c.mlp_layer_types, strict=True)))
