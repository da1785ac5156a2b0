"""GLM-5.3 Flash: Kimi's delta attention in most layers, indexed latent attention in every fourth, whose
indexer scores pools of tokens; residual streams, dense layers first and then experts, and a tower of
gated MLPs whose patches a convolution merges."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from flopcalc.architectures.blocks import (
    Multimodal,
    SparseLayers,
    backbone,
    check_multiple,
    check_types,
    dense_or_sparse,
    each,
    mla,
    mlp,
    multimodal_lm,
)
from flopcalc.architectures.deepseek import LatentMoe
from flopcalc.architectures.deepseek_v4 import hyper_connection
from flopcalc.architectures.glm_moe_dsa import scheduled_indexers
from flopcalc.architectures.kimi import LinearAttnConfig, delta_attention
from flopcalc.architectures.towers import PATCHES, PatchTower, alone, merged, patch_embed, qkv_attention
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register, register_part
from flopcalc.spans import Bidirectional, Blocks, Compressed, Span, TopK
from flopcalc.tree import Conv, IndexScores, LayerNorm, Layers, Linear, Module, Norm, Weight

INDEXED, LINEAR = "indexed_attention", "linear_attention"


class Glm5NextTextConfig(LatentMoe, SparseLayers):
    leading_dense = 3

    vocab_size: Size = 154880
    hidden_size: Size = 4096
    intermediate_size: Size = 12288
    num_hidden_layers: Count = 45
    num_attention_heads: Size = 64
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=288)
    q_lora_rank: Size = 1536
    qk_rope_head_dim: Count = 0
    v_head_dim: Size = 256
    qk_nope_head_dim: Size = 256
    index_topk: Size = 2048
    index_head_dim: Size = 128
    index_n_heads: Size = 32
    index_kpool: Size = 16
    index_kpool_always_select_tail: bool = True
    linear_head_dim: Size = 128
    linear_num_heads: Size = 64
    linear_conv_kernel_dim: Size = 4
    hc_mult: Size = 4
    layer_types: list[str] | None = None
    indexer_types: list[str] | None = None
    linear_attn_config: LinearAttnConfig = legacy(LinearAttnConfig())
    index_topk_pattern: str | list[str] | None = legacy()
    index_topk_freq: int = legacy(1)
    index_skip_topk_offset: int = legacy(2)

    def derive(self) -> None:
        super().derive()
        layers, nested = self.num_hidden_layers, self.linear_attn_config
        self.linear_head_dim = nested.head_dim or self.linear_head_dim
        self.linear_num_heads = nested.num_heads or self.linear_num_heads
        self.linear_conv_kernel_dim = nested.short_conv_kernel_size or self.linear_conv_kernel_dim
        if self.layer_types is None:
            self.layer_types = [INDEXED if i % 4 == 3 else LINEAR for i in range(layers)]
        self.layer_types = [INDEXED if kind == "full_attention" else kind for kind in self.layer_types]
        if self.indexer_types is None:
            self.indexer_types = scheduled_indexers(self)
        check_types("layer_types", self.layer_types, layers, (INDEXED, LINEAR))
        check_types("indexer_types", self.indexer_types, layers, ("full", "shared"))
        check_multiple("index_topk", self.index_topk, "index_kpool", self.index_kpool)
        if self.qk_rope_head_dim:
            raise ValueError(f"qk_rope_head_dim: found {self.qk_rope_head_dim}, expected 0: nothing is rotated")

    @property
    def span(self) -> Span:
        """The keys that the indexer picks: whole pools, and those of the pool that is not yet full."""
        return (
            Blocks(self.index_topk, self.index_kpool) if self.index_kpool_always_select_tail else TopK(self.index_topk)
        )


def pool_indexer(c: Glm5NextTextConfig) -> Module:
    """DeepSeek's indexer over pools of `index_kpool` keys, which a learned gate averages."""
    dim = c.index_head_dim
    return Module(
        wq_b=Linear(c.q_lora_rank, c.index_n_heads * dim),
        wk=Linear(c.hidden_size, dim),
        k_norm=LayerNorm(dim),
        index_kpool_compress_gate=Weight((dim, c.hidden_size), "linear"),
        index_kpool_compress_ape=Weight((c.index_kpool, dim)),
        weights_proj=Linear(c.hidden_size, c.index_n_heads),
        scores=IndexScores(c.index_n_heads, dim, Compressed(c.index_kpool)),
    ).as_indexer()


def glm5_next_layers(c: Glm5NextTextConfig) -> Layers:
    def layer(kind: tuple[str, str, str]) -> Module:
        attends, indexing, mlp_type = kind
        if attends == LINEAR:
            self_attn = delta_attention(c, (c.linear_num_heads,))
        else:
            self_attn = mla(c, c.span, indexer=pool_indexer(c) if indexing == "full" else None)
        return Module(
            attn_hc=hyper_connection(c),
            input_layernorm=Norm(c.hidden_size),
            self_attn=self_attn,
            ffn_hc=hyper_connection(c),
            post_attention_layernorm=Norm(c.hidden_size),
            mlp=dense_or_sparse(c, mlp_type, c.n_routed_experts, c.n_shared_experts),
        )

    kinds = zip(c.layer_types or [], c.indexer_types or [], c.mlp_layer_types or [], strict=True)
    return each(layer, ((attends, indexing if attends == INDEXED else "", mlp) for attends, indexing, mlp in kinds))


class Glm5NextVisionConfig(PatchTower):
    depth: Count = 24
    hidden_size: Size = 1024
    intermediate_size: Size = 4096
    out_hidden_size: Size = 1536
    projection_intermediate_size: Size = 10240
    attention_bias: bool = True


class Glm5NextConfig(Multimodal):
    """Text-only files hold the text model's fields at the top; the whole config's tie decides."""

    text_config: Glm5NextTextConfig = Field(default_factory=Glm5NextTextConfig)
    vision_config: Glm5NextVisionConfig = Field(default_factory=Glm5NextVisionConfig)

    @model_validator(mode="before")
    @classmethod
    def _gather_text(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "text_config": fields.get("text_config") or fields}


@register_part("glm5_next_vision", Glm5NextVisionConfig)
def glm5_next_tower(c: Glm5NextVisionConfig) -> Module:
    width, out, bias, dim = c.hidden_size, c.out_hidden_size, c.attention_bias, c.hidden_size // c.num_heads
    attn: Any = qkv_attention(width, c.num_heads, Bidirectional(), bias=bias)
    core = dict(attn.children)["core"]
    norms = {"q_norm": Norm(dim, "head_norm", c.num_heads), "k_norm": Norm(dim, "head_norm", c.num_heads), "core": core}
    block = Module(
        norm1=Norm(width),
        attn=attn.replacing(core=norms),
        norm2=Norm(width),
        mlp=mlp(width, c.intermediate_size, bias=bias),
    )
    merge = (c.spatial_merge_size, c.spatial_merge_size)
    return Module(
        patch_embed=patch_embed(c, width, bias=True),
        blocks=Layers([block] * c.depth),
        post_layernorm=Norm(width),
        downsample=alone(Conv(width, out, merge, bias=True), merged(c)),
        merger=Module(
            proj=Linear(out, out),
            post_projection_norm=LayerNorm(out),
            **dict(mlp(out, c.projection_intermediate_size).children),
        )
        .reading(gate_proj="post_projection_norm", up_proj="post_projection_norm")
        .on(merged(c)),
    ).on(PATCHES)


@register_part("glm5_next_text", Glm5NextTextConfig)
def glm5_next_text(c: Glm5NextTextConfig) -> Module:
    return backbone(c, glm5_next_layers(c))


@register("glm5_next", Glm5NextConfig)
def glm5_next(c: Glm5NextConfig) -> Module:
    return multimodal_lm(c, glm5_next_text(c.text_config), visual=glm5_next_tower(c.vision_config))
