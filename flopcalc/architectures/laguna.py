"""Laguna: query heads differ from layer to layer, gated attention, experts with a shared one."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    SparseLayers,
    TypedDecoder,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    each,
    experts,
    mlp,
    router,
)
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module, Weight


class LagunaConfig(TypedDecoder, SparseLayers):
    leading_dense = 1

    vocab_size: Size = 100352
    hidden_size: Size = 2048
    intermediate_size: Size = 8192
    num_hidden_layers: Count = 40
    num_attention_heads: Size = 48
    num_key_value_heads: Size = 8
    head_dim: Size = 128
    sliding_window: Count | None = 512
    moe_intermediate_size: Size = 512
    shared_expert_intermediate_size: Size = 512
    num_experts: Size = 256
    num_experts_per_tok: Size = 8
    attention_bias: bool = False
    gating: bool | str = True
    num_attention_heads_per_layer: list[Size] | None = None

    def derive(self) -> None:
        super().derive()
        layers = self.num_hidden_layers
        if self.num_attention_heads_per_layer is None:
            self.num_attention_heads_per_layer = [self.num_attention_heads] * layers
        if len(self.num_attention_heads_per_layer) != layers:
            found = len(self.num_attention_heads_per_layer)
            raise ValueError(
                f"num_attention_heads_per_layer: found {found} entries, expected num_hidden_layers = {layers}"
            )
        check_top_k(self.num_experts_per_tok, self.num_experts)


@register("laguna", LagunaConfig)
def laguna(c: LagunaConfig) -> Module:
    hidden, num_experts = c.hidden_size, c.num_experts
    gate_per_head = c.gating is True or c.gating == "per-head"
    sparse_mlp = Module(
        gate=router(hidden, num_experts, e_score_correction_bias=Weight((num_experts,))),
        experts=experts(hidden, c.moe_intermediate_size, num_experts, c.num_experts_per_tok),
        shared_experts=mlp(hidden, c.shared_expert_intermediate_size),
    ).reading("gate", "experts", "shared_experts")

    def layer(kind: tuple[str, str, int]) -> Module:
        attends, mlp_type, heads = kind
        return decoder_layer(
            hidden,
            self_attn=attention(
                c.model_copy(update={"num_attention_heads": heads}),
                c.span(attends),
                bias=c.attention_bias,
                qk_norm=True,
                after_core={
                    "g_proj": Linear(hidden, heads if gate_per_head else heads * c.head_dim, kind="output_gate")
                },
            ).reading("g_proj"),
            mlp=sparse_mlp if mlp_type == "sparse" else mlp(hidden, c.intermediate_size),
        )

    kinds = zip(c.layer_types, c.mlp_layer_types, c.num_attention_heads_per_layer, strict=True)
    return causal_lm(c, each(layer, kinds))
