"""Kimi-K3: Kimi-Linear's layers with full output gates and experts on a narrower latent of the token. Every
mixer reads its input out of the sums of the blocks of layers before it. The structure follows from its
published fields and the public implementations of it; names are those of Kimi-Linear."""

from __future__ import annotations

from math import prod
from typing import Literal, NamedTuple

from pydantic import Field

from flopcalc.architectures.blocks import (
    Multimodal,
    backbone,
    check_multiple,
    each,
    experts,
    mla,
    mlp,
    multimodal_lm,
    plain_mlp,
    router,
)
from flopcalc.architectures.kimi import KimiLayersConfig, LinearAttnConfig, delta_attention
from flopcalc.architectures.towers import PATCHES, Sides, alone
from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import Full, Video
from flopcalc.tree import (
    Attention,
    Conv,
    LayerNorm,
    Layers,
    Linear,
    Module,
    Node,
    Norm,
    Stream,
    StreamMix,
    Weight,
)


class KimiK3TextConfig(KimiLayersConfig):
    hidden_size: Size = 7168
    intermediate_size: Size = 33792
    num_hidden_layers: Count = 93
    num_attention_heads: Size = 96
    q_lora_rank: Size | None = 1536
    mla_use_output_gate: bool = True
    moe_intermediate_size: Size = 3072
    num_local_experts: Size = Field(default=896, alias="num_experts")
    n_shared_experts: Count = Field(default=2, alias="num_shared_experts")
    num_experts_per_tok: Size = Field(default=16, alias="num_experts_per_token")
    routed_expert_hidden_size: Size | None = 3584
    latent_moe_use_norm: bool = True
    linear_num_heads: Size = 96
    linear_attn_config: LinearAttnConfig = LinearAttnConfig(use_full_rank_gate=True)
    moe_layer_freq: Size = 1
    attn_res_block_size: Size | None = 12

    def default_layer_types(self) -> list[str]:
        last = self.num_hidden_layers
        return ["linear_attention" if i % 4 and i != last else "full_attention" for i in range(1, last + 1)]

    def derive(self) -> None:
        if self.mlp_layer_types is None:
            first, every = self.first_k_dense_replace, self.moe_layer_freq
            layers = range(self.num_hidden_layers)
            self.mlp_layer_types = ["dense" if i < first or i % every else "sparse" for i in layers]
        super().derive()


class KimiK3VisionConfig(Schema):
    """Of what a field names, the one kind that is published."""

    vt_hidden_size: Size = 1024
    vt_intermediate_size: Size = 4096
    vt_num_hidden_layers: Count = 27
    vt_num_attention_heads: Size = 12
    qkv_hidden_size: Size | None = 1536
    patch_size: Size = 14
    init_pos_emb_height: Size = 64
    init_pos_emb_width: Size = 64
    merge_kernel_size: Sides = Field(default=[2, 2])
    mm_hidden_size: Size | None = None
    attn_bias: bool = False
    linear_bias: bool = False
    patch_embed_proj_bias: bool = False
    norm_type: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    mlp_type: Literal["mlp2"] = "mlp2"
    pos_emb_type: Literal["divided_fixed"] = "divided_fixed"
    merge_type: Literal["sd2_tpool"] = "sd2_tpool"
    mm_projector_type: Literal["patchmergerv2"] = "patchmergerv2"

    def derive(self) -> None:
        if self.qkv_hidden_size is None:
            self.qkv_hidden_size = self.vt_hidden_size
        check_multiple("qkv_hidden_size", self.qkv_hidden_size, "vt_num_attention_heads", self.vt_num_attention_heads)
        if self.mm_hidden_size not in (None, self.vt_hidden_size):
            raise ValueError(f"mm_hidden_size: found {self.mm_hidden_size}, expected vt_hidden_size")

    def norm(self) -> Node:
        return Norm(self.vt_hidden_size) if self.norm_type == "rmsnorm" else LayerNorm(self.vt_hidden_size)


class KimiK3Config(Multimodal):
    text_config: KimiK3TextConfig = Field(default_factory=KimiK3TextConfig)
    vision_config: KimiK3VisionConfig = Field(default_factory=KimiK3VisionConfig)


class Place(NamedTuple):
    """A layer by its kinds, and the vectors that its attention (none: its own input alone) and its MLP read
    from; no layer reads any where the sums of blocks are not kept."""

    attends: str
    mlp: str
    attention_reads: int | None
    mlp_reads: int | None


def places(c: KimiK3TextConfig) -> list[Place]:
    """The first layer of a block closes the one before it, once its attention has read."""
    block = c.attn_res_block_size
    return [
        Place(*kinds, (i - 1) // block + 2 if i else 0, i // block + 2) if block else Place(*kinds, None, None)
        for i, kinds in enumerate(zip(c.layer_types or [], c.mlp_layer_types or [], strict=True))
    ]


def residual(name: str, hidden: int, reads: int | None) -> dict[str, Node]:
    """One weighted sum of `reads` vectors of the token itself, each scored by a norm and a projection to one
    number: the sums of the blocks so far, and that of the open one."""
    if reads is None:
        return {}
    scored = Stream(rows=reads)
    parts = {f"{name}_norm": alone(Norm(hidden), scored), f"{name}_proj": Linear(hidden, 1, kind="stream_map")}
    if not reads:
        return {part: alone(leaf, scored).never_run() for part, leaf in parts.items()}
    scores = {part: alone(leaf, scored) for part, leaf in parts.items()}
    return {**scores, f"{name}_mix": StreamMix(reads, hidden, 1)}


def latent_moe(c: KimiK3TextConfig) -> Module:
    """Experts between two projections and behind a norm; the shared expert and the router see the whole token."""
    hidden, latent, width = c.hidden_size, c.routed_expert_hidden_size, c.moe_intermediate_size
    normed = latent and c.latent_moe_use_norm
    return Module(
        gate=router(hidden, c.num_local_experts),
        routed_expert_down_proj=Linear(hidden, latent) if latent else None,
        experts=experts(latent or hidden, width, c.num_local_experts, c.num_experts_per_tok),
        routed_expert_norm=Norm(latent) if latent and normed else None,
        routed_expert_up_proj=Linear(latent, hidden) if latent else None,
        shared_experts=mlp(hidden, width * c.n_shared_experts) if c.n_shared_experts else None,
    ).reading("gate", "routed_expert_down_proj", "shared_experts", experts="routed_expert_down_proj")


def gated_delta_attention(c: KimiK3TextConfig) -> Module:
    delta = delta_attention(c, (1, 1, c.linear_num_heads, 1))
    if not c.linear_attn_config.use_full_rank_gate:
        return delta
    gate = Linear(c.hidden_size, c.linear_num_heads * c.linear_head_dim)
    return delta.replacing(g_a_proj={"g_proj": gate}, g_b_proj={}).reading("g_proj")


def layers(c: KimiK3TextConfig) -> Layers:
    hidden, delta = c.hidden_size, gated_delta_attention(c)
    gate = Linear(hidden, c.num_attention_heads * c.v_head_dim, kind="output_gate")
    latent = mla(c, Full(), after_core={"g_proj": gate} if c.mla_use_output_gate else {}).reading("g_proj")

    def layer(at: Place) -> Module:
        return Module(
            **residual("self_attention_res", hidden, at.attention_reads),
            input_layernorm=Norm(hidden),
            self_attn=latent if at.attends == "full_attention" else delta,
            **residual("mlp_res", hidden, at.mlp_reads),
            post_attention_layernorm=Norm(hidden),
            mlp=mlp(hidden, c.intermediate_size) if at.mlp == "dense" else latent_moe(c),
        )

    return each(layer, places(c))


def tower(c: KimiK3VisionConfig) -> Module:
    width, inner, heads = c.vt_hidden_size, c.qkv_hidden_size or c.vt_hidden_size, c.vt_num_attention_heads
    block = Module(
        norm0=c.norm(),
        wqkv=Linear(width, 3 * inner, c.attn_bias),
        core=Attention(heads, inner // heads, inner // heads, Video()),
        wo=Linear(inner, width, c.attn_bias),
        norm1=c.norm(),
        mlp=plain_mlp(width, c.vt_intermediate_size, bias=c.linear_bias, names=("fc0", "fc1")),
    )
    return Module(
        patch_embed=Module(
            proj=Conv(3, width, (c.patch_size, c.patch_size), c.patch_embed_proj_bias, "patch_embedding"),
            pos_emb=Module(weight=Weight((c.init_pos_emb_height, c.init_pos_emb_width, width), "lookup")),
        ),
        encoder=Module(blocks=Layers([block] * c.vt_num_hidden_layers), final_layernorm=c.norm()),
    ).on(PATCHES)


@register("kimi_k3", KimiK3Config)
def kimi_k3(c: KimiK3Config) -> Module:
    text, merge = c.text_config, prod(c.vision_config.merge_kernel_size)
    hidden, joined = text.hidden_size, merge * c.vision_config.vt_hidden_size
    projector = Module(
        proj=Module(**{"0": Linear(joined, joined), "2": Linear(joined, hidden)}),
        post_norm=Norm(hidden),
    ).on(Stream("image", every=merge, pooled=True))
    block = text.attn_res_block_size
    reads = (text.num_hidden_layers - 1) // block + 2 if block else None
    output = residual("output_attn_res", hidden, reads)
    body = backbone(text, layers(text), **output, norm=Norm(hidden, "final_norm"))
    return multimodal_lm(c, body, vision_tower=tower(c.vision_config), mm_projector=projector)
