"""Granite 4 hybrid: Mamba-2 or attention, then routed experts (none in the dense models) beside an MLP
that all tokens share."""

from __future__ import annotations

from flopcalc.architectures.bamba import Mamba2Hybrid
from flopcalc.architectures.blocks import (
    LEGACY_LAYER_TYPES,
    attention,
    causal_lm,
    check_top_k,
    check_types,
    decoder_layer,
    each,
    experts,
    router,
)
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Linear, Module


class GraniteMoeHybridConfig(Mamba2Hybrid):
    num_local_experts: Count = 8
    num_experts_per_tok: Count = 2
    shared_intermediate_size: Size = 1024
    layer_types: list[str] | None = aliases("layer_types", "layers_block_type", default=None)

    def derive(self) -> None:
        super().derive()
        if self.layer_types is None:
            self.layer_types = ["linear_attention"] * self.num_hidden_layers
        self.layer_types = [LEGACY_LAYER_TYPES.get(kind, kind) for kind in self.layer_types]
        check_types("layer_types", self.layer_types, self.num_hidden_layers, ("linear_attention", "full_attention"))
        if self.num_local_experts and not self.num_experts_per_tok:
            raise ValueError("num_experts_per_tok: found 0, expected the number of routed experts a token uses")
        check_top_k(self.num_experts_per_tok, self.num_local_experts)


@register("granitemoehybrid", GraniteMoeHybridConfig)
def granitemoehybrid(c: GraniteMoeHybridConfig) -> Module:
    hidden, shared, num_experts = c.hidden_size, c.shared_intermediate_size, c.num_local_experts

    def layer(kind: str) -> Module:
        attends = kind == "full_attention"
        routed = Module(
            router=router(hidden, num_experts),
            experts=experts(hidden, c.intermediate_size, num_experts, c.num_experts_per_tok),
        ).reading("router", "experts")
        return decoder_layer(
            hidden,
            mamba=None if attends else c.mamba(),
            self_attn=attention(c, Full(), bias=c.attention_bias) if attends else None,
            block_sparse_moe=routed if num_experts else None,
            shared_mlp=Module(input_linear=Linear(hidden, 2 * shared), output_linear=Linear(shared, hidden)),
        ).reading(shared_mlp="post_attention_layernorm")

    return causal_lm(c, each(layer, c.layer_types))
