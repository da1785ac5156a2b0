"""Kolibri 1: norms before and behind attention and experts, four windows to a full layer."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    TypedDecoder,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    each,
    every_nth_full,
    mlp,
    moe,
)
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.tree import Module, Norm


class Kolibri1Config(TypedDecoder):
    vocab_size: Size = 128000
    hidden_size: Size = 2560
    intermediate_size: Size = legacy(1)  # no layer is dense
    num_hidden_layers: Count = 50
    num_attention_heads: Size = 48
    num_key_value_heads: Size | None = 4
    head_dim: Size = 128
    sliding_window: Count | None = 513
    moe_intermediate_size: Size = 512
    shared_expert_intermediate_size: Size = 512
    num_experts: Size = aliases("num_local_experts", "num_experts", default=384)
    num_experts_per_tok: Size = 6

    def default_layer_types(self) -> list[str]:
        return every_nth_full(self.num_hidden_layers, 5)

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_experts)


@register("kolibri1", Kolibri1Config)
def kolibri1(c: Kolibri1Config) -> Module:
    hidden, shared = c.hidden_size, mlp(c.hidden_size, c.shared_expert_intermediate_size)

    def layer(kind: str) -> Module:
        return decoder_layer(
            hidden,
            self_attn=attention(c, c.span(kind), qk_norm=True),
            post_self_attn_layernorm=Norm(hidden),
            mlp=moe(hidden, c.moe_intermediate_size, c.num_experts, c.num_experts_per_tok, shared_experts=shared),
            post_mlp_layernorm=Norm(hidden),
        )

    return causal_lm(c, each(layer, c.layer_types))
