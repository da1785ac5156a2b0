"""Kimi K2.5: DeepSeek-V3's language model behind MoonViT, where a video attends to all its frames and
leaves the tower as one."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import ClassVar

from pydantic import Field

from flopcalc.architectures.blocks import Nested, multimodal_lm, part, plain_mlp
from flopcalc.architectures.towers import PATCHES, alone, split_attention
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Video
from flopcalc.tree import Conv, LayerNorm, Layers, Linear, Module, Stream, Weight


class KimiK25VisionConfig(Schema):
    hidden_size: Size = aliases("hidden_size", "vt_hidden_size", default=1152)
    intermediate_size: Size = aliases("intermediate_size", "vt_intermediate_size", default=4304)
    num_hidden_layers: Count = aliases("num_hidden_layers", "vt_num_hidden_layers", default=27)
    num_attention_heads: Size = aliases("num_attention_heads", "vt_num_attention_heads", default=16)
    patch_size: Size = 14
    pos_emb_height: Size = aliases("pos_emb_height", "init_pos_emb_height", default=64)
    pos_emb_width: Size = aliases("pos_emb_width", "init_pos_emb_width", default=64)
    merge_kernel_size: list[Size] = Field(default=[2, 2])


class KimiK25Config(Nested):
    part_defaults: ClassVar = {"text_config": {"model_type": "deepseek_v3"}}

    tie_word_embeddings: bool = True
    vision_config: KimiK25VisionConfig = Field(default_factory=KimiK25VisionConfig)
    projection_hidden_size: Size = 1152


def tower(c: KimiK25VisionConfig) -> Module:
    width = c.hidden_size
    layer = Module(
        norm1=LayerNorm(width),
        attn=split_attention(width, c.num_attention_heads, Video(), out="proj"),
        norm2=LayerNorm(width),
        mlp=plain_mlp(width, c.intermediate_size, bias=True, names=("fc1", "fc2")),
    )
    return Module(
        patch_embed=Module(
            proj=Conv(3, width, (c.patch_size, c.patch_size), True, "patch_embedding"),
            pos_emb=Module(position_embeddings=Weight((c.pos_emb_height, c.pos_emb_width, width), "lookup")),
        ),
        layers=Layers([layer] * c.num_hidden_layers),
        final_layernorm=LayerNorm(width),
    ).on(PATCHES)


@register("kimi_k25", KimiK25Config)
def kimi_k25(c: KimiK25Config) -> Module:
    merge = prod(c.vision_config.merge_kernel_size)
    joined, pooled = merge * c.vision_config.hidden_size, Stream("image", pooled=True)
    projector = Module(
        pre_norm=alone(LayerNorm(c.projection_hidden_size), pooled),
        in_proj=Linear(joined, joined, True),
        out_proj=Linear(joined, c.text_config.hidden_size, True),
    ).on(replace(pooled, every=merge))
    return multimodal_lm(c, part(c.text_config), vision_tower=tower(c.vision_config), mm_projector=projector)
