"""DeepSeek-V2 to V3.2: multi-head latent attention over a mixture of many small experts, some of them
shared by all tokens. V3.2 reads only the keys that its indexer picks."""

from __future__ import annotations

from functools import partial
from typing import Any

from flopcalc.architectures.blocks import (
    LEGACY_LAYER_TYPES,
    SparseLayers,
    Stack,
    causal_lm,
    check_top_k,
    check_types,
    decoder_layer,
    dense_or_sparse,
    each,
    leading_dense,
    mla,
)
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.mtp import next_token_depth, register_mtp
from flopcalc.spans import Full, TopK
from flopcalc.tree import IndexScores, LayerNorm, Linear, Module


class Latent(Stack):
    """Multi-head latent attention, with the defaults of DeepSeek-V3."""

    hidden_size: Size = 7168
    num_attention_heads: Size = 128
    attention_bias: bool = False
    q_lora_rank: Size | None = 1536
    kv_lora_rank: Size = 512
    qk_nope_head_dim: Size = 128
    qk_rope_head_dim: Size = 64
    v_head_dim: Size = 128


class LatentMoe(Latent):
    """Latent attention over routed and shared experts, with the defaults of DeepSeek-V3."""

    vocab_size: Size = 129280
    intermediate_size: Size = 18432
    num_hidden_layers: Count = 61
    moe_intermediate_size: Size = 2048
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=256)
    n_shared_experts: Count = 1
    num_experts_per_tok: Size = 8

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.n_routed_experts)


class DeepseekV2Config(LatentMoe):
    vocab_size: Size = 102400
    hidden_size: Size = 4096
    intermediate_size: Size = 11008
    num_hidden_layers: Count = 32
    num_attention_heads: Size = 32
    mlp_bias: bool = False
    first_k_dense_replace: Count = 0
    moe_intermediate_size: Size = 1407
    n_routed_experts: Size = aliases("num_experts", "n_routed_experts", default=64)
    n_shared_experts: Count = 2
    num_experts_per_tok: Size | None = None  # its class has no default

    def derive(self) -> None:
        if self.num_experts_per_tok is None:
            raise ValueError("num_experts_per_tok: found None, expected the number of routed experts a token uses")
        super().derive()


@register("deepseek_v2", DeepseekV2Config)
def deepseek_v2(c: DeepseekV2Config) -> Module:
    def layer(kind: str) -> Module:
        return decoder_layer(
            c.hidden_size,
            self_attn=mla(c, Full()),
            mlp=dense_or_sparse(c, kind, c.n_routed_experts, c.n_shared_experts, bias=c.mlp_bias),
        )

    return causal_lm(c, each(layer, leading_dense(c.num_hidden_layers, c.first_k_dense_replace)))


class DeepseekV3Config(LatentMoe):
    first_k_dense_replace: Count = 3


def latent_layer(c: LatentMoe, kind: str) -> Module:
    """A `dense` layer, or one of routed and shared experts."""
    return decoder_layer(
        c.hidden_size,
        self_attn=mla(c, Full()),
        mlp=dense_or_sparse(c, kind, c.n_routed_experts, c.n_shared_experts),
    )


@register("deepseek_v3", DeepseekV3Config)
def deepseek_v3(c: DeepseekV3Config) -> Module:
    kinds = leading_dense(c.num_hidden_layers, c.first_k_dense_replace)
    return causal_lm(c, each(partial(latent_layer, c), kinds))


@register_mtp("deepseek_v3")
def deepseek_v3_mtp(c: DeepseekV3Config) -> Module:
    return next_token_depth(c.hidden_size, latent_layer(c, "sparse"))


class DeepseekV32Config(LatentMoe, SparseLayers):
    q_lora_rank: Size = 1536
    n_routed_experts: Size = aliases("num_experts", "num_local_experts", "n_routed_experts", default=256)
    index_topk: Size = 2048
    index_head_dim: Size = 128
    index_n_heads: Size = 64
    first_k_dense_replace: Count = 3
    layer_types: list[str] | None = None

    def derive(self) -> None:
        super().derive()
        if self.layer_types is None:
            self.layer_types = ["indexed_attention"] * self.num_hidden_layers
        self.layer_types = [LEGACY_LAYER_TYPES.get(kind, kind) for kind in self.layer_types]
        check_types("layer_types", self.layer_types, self.num_hidden_layers, ("indexed_attention",))


def indexer(c: Any) -> Module:
    """DeepSeek sparse attention's indexer: it scores every key with narrow heads, their sum weighted
    by each query, and keeps the best `index_topk`. Only indices come out, so no gradient goes in."""
    return Module(
        wq_b=Linear(c.q_lora_rank, c.index_n_heads * c.index_head_dim),
        wk=Linear(c.hidden_size, c.index_head_dim),
        k_norm=LayerNorm(c.index_head_dim),
        weights_proj=Linear(c.hidden_size, c.index_n_heads),
        scores=IndexScores(c.index_n_heads, c.index_head_dim, Full()),
    ).as_indexer()


def indexed_layer(c: DeepseekV32Config, kind: str, *, owns_indexer: bool = True) -> Module:
    """A layer that attends to the keys of its own indexer, or of one before it."""
    return decoder_layer(
        c.hidden_size,
        self_attn=mla(c, TopK(c.index_topk), indexer=indexer(c) if owns_indexer else None),
        mlp=dense_or_sparse(c, kind, c.n_routed_experts, c.n_shared_experts),
    )


@register("deepseek_v32", DeepseekV32Config)
def deepseek_v32(c: DeepseekV32Config) -> Module:
    return causal_lm(c, each(partial(indexed_layer, c), c.mlp_layer_types))


@register_mtp("deepseek_v32")
def deepseek_v32_mtp(c: DeepseekV32Config) -> Module:
    return next_token_depth(c.hidden_size, indexed_layer(c, "sparse"))
