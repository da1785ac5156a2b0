"""GLM-4: dense with norms before and after each block; GLM-4.5 to 4.7, a mixture of experts under
grouped-query attention; GLM-4.7-Flash, one under latent attention."""

from __future__ import annotations

from functools import partial

from flopcalc.architectures.blocks import (
    Decoder,
    SparseLayers,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    dense_or_sparse,
    each,
    fused_mlp,
    leading_dense,
)
from flopcalc.architectures.deepseek import LatentMoe, latent_layer
from flopcalc.architectures.glm import GlmConfig
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.mtp import next_token_depth, register_mtp
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module, Norm


@register("glm4", GlmConfig)
def glm4(c: GlmConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), bias=c.attention_bias, o_bias=False),
        post_self_attn_layernorm=Norm(c.hidden_size),
        mlp=fused_mlp(c.hidden_size, c.intermediate_size),
        post_mlp_layernorm=Norm(c.hidden_size),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))


class Glm4MoeConfig(Decoder):
    vocab_size: Size = 151552
    intermediate_size: Size = 10944
    num_hidden_layers: Count = 46
    num_attention_heads: Size = 96
    num_key_value_heads: Size | None = 8
    attention_bias: bool = False
    use_qk_norm: bool = False
    first_k_dense_replace: Count = 1
    moe_intermediate_size: Size = 1408
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=128)
    n_shared_experts: Count = 1
    num_experts_per_tok: Size = 8

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.n_routed_experts)


def glm4_moe_layer(c: Glm4MoeConfig, kind: str) -> Module:
    self_attn = attention(c, Full(), bias=c.attention_bias, o_bias=False, qk_norm=c.use_qk_norm)
    return decoder_layer(
        c.hidden_size, self_attn=self_attn, mlp=dense_or_sparse(c, kind, c.n_routed_experts, c.n_shared_experts)
    )


def glm4_moe_layers(c: Glm4MoeConfig) -> Layers:
    return each(partial(glm4_moe_layer, c), leading_dense(c.num_hidden_layers, c.first_k_dense_replace))


@register("glm4_moe", Glm4MoeConfig)
def glm4_moe(c: Glm4MoeConfig) -> Module:
    return causal_lm(c, glm4_moe_layers(c))


@register_mtp("glm4_moe")
def glm4_moe_mtp(c: Glm4MoeConfig) -> Module:
    return next_token_depth(c.hidden_size, glm4_moe_layer(c, "sparse"))


class Glm4MoeLiteConfig(LatentMoe, SparseLayers):
    leading_dense = 1

    vocab_size: Size = 154880
    hidden_size: Size = 2048
    intermediate_size: Size = 10240
    num_hidden_layers: Count = 47
    num_attention_heads: Size = 20
    q_lora_rank: Size | None = 768
    qk_nope_head_dim: Size = 192
    qk_rope_head_dim: Size = aliases("head_dim", "qk_rope_head_dim", default=64)
    v_head_dim: Size = 256
    moe_intermediate_size: Size = 1536
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=64)
    num_experts_per_tok: Size = 4


@register("glm4_moe_lite", Glm4MoeLiteConfig)
def glm4_moe_lite(c: Glm4MoeLiteConfig) -> Module:
    return causal_lm(c, each(partial(latent_layer, c), c.mlp_layer_types))


@register_mtp("glm4_moe_lite")
def glm4_moe_lite_mtp(c: Glm4MoeLiteConfig) -> Module:
    return next_token_depth(c.hidden_size, latent_layer(c, "sparse"))
