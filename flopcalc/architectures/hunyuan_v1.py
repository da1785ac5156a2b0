"""Hunyuan v1, dense and MoE: norms on the heads, named after queries and keys."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    Decoder,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    each,
    experts,
    mlp,
)
from flopcalc.config import Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Linear, Module, Norm


class HunYuanConfig(Decoder):
    vocab_size: Size = 290943
    attention_bias: bool = False

    def derive(self) -> None:
        if self.head_dim is None:  # the class has no default and derives none
            raise ValueError("head_dim: found None, expected the width of a head")
        super().derive()


def self_attention(c: HunYuanConfig) -> Module:
    return attention(
        c, Full(), bias=c.attention_bias, query_layernorm=Norm(c.head_dim), key_layernorm=Norm(c.head_dim)
    ).reading(query_layernorm="q_proj", key_layernorm="k_proj")


@register("hunyuan_v1_dense", HunYuanConfig)
def hunyuan_v1_dense(c: HunYuanConfig) -> Module:
    layer = decoder_layer(c.hidden_size, self_attn=self_attention(c), mlp=mlp(c.hidden_size, c.intermediate_size))
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))


class HunYuanMoeConfig(HunYuanConfig):
    num_experts: Size = aliases("num_local_experts", "num_experts", default=1)
    moe_topk: Size | list[Size] = aliases("num_experts_per_tok", "moe_topk", default=1)

    def top_k(self) -> list[int]:
        """Experts that a token uses, for each layer."""
        return self.moe_topk if isinstance(self.moe_topk, list) else [self.moe_topk] * self.num_hidden_layers

    def derive(self) -> None:
        super().derive()
        top_k = self.top_k()
        if len(top_k) != self.num_hidden_layers:
            raise ValueError(
                f"moe_topk: found {len(top_k)} entries, expected num_hidden_layers = {self.num_hidden_layers}"
            )
        check_top_k(max(top_k, default=0), self.num_experts, "moe_topk")


@register("hunyuan_v1_moe", HunYuanMoeConfig)
def hunyuan_v1_moe(c: HunYuanMoeConfig) -> Module:
    hidden, width = c.hidden_size, c.intermediate_size

    def layer(top_k: int) -> Module:
        sparse_mlp = Module(
            gate=Module(wg=Linear(hidden, c.num_experts, kind="router")),
            experts=experts(hidden, width, c.num_experts, top_k),
            shared_mlp=mlp(hidden, width),
        ).reading("gate", "experts", "shared_mlp")
        return decoder_layer(hidden, self_attn=self_attention(c), mlp=sparse_mlp)

    return causal_lm(c, each(layer, c.top_k()))
