"""A.X K1: DeepSeek-V3's latent attention and experts, a norm behind the experts."""

from __future__ import annotations

from flopcalc.architectures.blocks import SparseLayers, causal_lm, decoder_layer, each, experts, mla, mlp, router
from flopcalc.architectures.deepseek import LatentMoe
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Module, Norm


class AxK1Config(LatentMoe, SparseLayers):
    vocab_size: Size = 163840
    num_attention_heads: Size = 64
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=192)
    first_k_dense_replace: Count = legacy(1)
    moe_layer_freq: Size = legacy(1)


@register("axk1", AxK1Config)
def axk1(c: AxK1Config) -> Module:
    hidden, width = c.hidden_size, c.moe_intermediate_size
    sparse_mlp = Module(
        gate=router(hidden, c.n_routed_experts),
        experts=experts(hidden, width, c.n_routed_experts, c.num_experts_per_tok),
        shared_experts=mlp(hidden, width * c.n_shared_experts),
        post_mlp_layernorm=Norm(hidden),
    ).reading("gate", "experts", "shared_experts")

    def layer(kind: str) -> Module:
        mlp_of_kind = sparse_mlp if kind == "sparse" else mlp(hidden, c.intermediate_size)
        return decoder_layer(hidden, self_attn=mla(c, Full()), mlp=mlp_of_kind)

    return causal_lm(c, each(layer, c.mlp_layer_types))
