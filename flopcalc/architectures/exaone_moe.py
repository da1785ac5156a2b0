"""EXAONE MoE: EXAONE 4's windows, dense layers first and then experts with a shared one."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    SparseLayers,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    dense_or_sparse,
    each,
)
from flopcalc.architectures.exaone4 import ExaoneWindows
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Module


class ExaoneMoeConfig(ExaoneWindows, SparseLayers):
    first_k_dense_replace: Count = 1
    moe_intermediate_size: Size = 1024
    num_experts: Size = 64
    num_experts_per_tok: Size = 8
    num_shared_experts: Count = 1

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_experts)


@register("exaone_moe", ExaoneMoeConfig)
def exaone_moe(c: ExaoneMoeConfig) -> Module:
    def layer(kind: tuple[str, str]) -> Module:
        attends, mlp_type = kind
        return decoder_layer(
            c.hidden_size,
            self_attn=attention(c, c.span(attends), qk_norm=True),
            mlp=dense_or_sparse(c, mlp_type, c.num_experts, c.num_shared_experts),
        )

    return causal_lm(c, each(layer, zip(c.layer_types, c.mlp_layer_types, strict=True)))
