"""AFMoE (Trinity): windows with a full layer every fourth, an output gate on attention, norms on both
sides of attention and MLP, dense layers first and then experts with shared ones."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    TypedDecoder,
    attention,
    causal_lm,
    check_top_k,
    each,
    every_nth_full,
    experts,
    mlp,
)
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module, Norm, Weight


class AfmoeConfig(TypedDecoder):
    vocab_size: Size = 200192
    hidden_size: Size = 2048
    intermediate_size: Size = 6144
    moe_intermediate_size: Size = 1408
    num_dense_layers: Count = 1
    num_attention_heads: Size = 16
    head_dim: Size = 128
    num_experts: Size = 64
    num_experts_per_tok: Size = 6
    num_shared_experts: Count = 2
    global_attn_every_n_layers: Size = 4
    sliding_window: Count | None = 1024
    attention_bias: bool = False

    def default_layer_types(self) -> list[str]:
        return every_nth_full(self.num_hidden_layers, self.global_attn_every_n_layers)

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_experts)


@register("afmoe", AfmoeConfig)
def afmoe(c: AfmoeConfig) -> Module:
    hidden, width, num_experts = c.hidden_size, c.moe_intermediate_size, c.num_experts
    sparse_mlp = Module(
        router=Module(gate=Linear(hidden, num_experts, kind="router")),
        shared_experts=mlp(hidden, width * c.num_shared_experts),
        experts=experts(hidden, width, num_experts, c.num_experts_per_tok),
        expert_bias=Weight((num_experts,)),
    ).reading("router", "shared_experts", "experts")

    def layer(kind: tuple[str, bool]) -> Module:
        attends, sparse = kind
        gate = Linear(hidden, c.num_attention_heads * c.head_dim, kind="output_gate")
        return Module(
            input_layernorm=Norm(hidden),
            self_attn=attention(
                c, c.span(attends), bias=c.attention_bias, qk_norm=True, after_core={"gate_proj": gate}
            ).reading("gate_proj"),
            post_attention_layernorm=Norm(hidden),
            pre_mlp_layernorm=Norm(hidden),
            mlp=sparse_mlp if sparse else mlp(hidden, c.intermediate_size),
            post_mlp_layernorm=Norm(hidden),
        )

    return causal_lm(c, each(layer, ((kind, i >= c.num_dense_layers) for i, kind in enumerate(c.layer_types))))
