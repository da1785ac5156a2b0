"""Qwen2.5-VL: Qwen2 beside a tower that attends in windows, but for a few layers."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.blocks import FlatMultimodal, backbone, each, mlp, multimodal_lm
from flopcalc.architectures.qwen2 import qwen2_layers
from flopcalc.architectures.qwen2_vl import Qwen2VLTextConfig
from flopcalc.architectures.towers import (
    PATCHES,
    PatchTower,
    patch_embed,
    qkv_attention,
    split_attention,
    two_layer_merger,
)
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional, GridWindow, Span
from flopcalc.tree import Module, Norm


class Qwen2_5VisionConfig(PatchTower):
    hidden_size: Size = 3584
    intermediate_size: Size = 3420
    out_hidden_size: Size = 3584
    window_size: Size = 112
    fullatt_block_indexes: list[int] = Field(default=[7, 15, 23, 31])


class Qwen2_5VLConfig(FlatMultimodal):
    text_config: Qwen2VLTextConfig = Field(default_factory=Qwen2VLTextConfig)
    vision_config: Qwen2_5VisionConfig = Field(default_factory=Qwen2_5VisionConfig)


def windowed_tower(c: Qwen2_5VisionConfig, *, split: bool = False) -> Module:
    """The tower; its windows are `window_size` pixels wide, in whole merged tokens. `split` has a
    matrix for each of query, key and value."""
    merge = c.spatial_merge_size
    window = GridWindow(c.window_size // merge // c.patch[1] * merge)

    def attention(span: Span) -> Module:
        if split:
            return split_attention(c.hidden_size, c.num_heads, span, names=("q", "k", "v"), out="proj")
        return qkv_attention(c.hidden_size, c.num_heads, span)

    def block(full: bool) -> Module:
        return Module(
            norm1=Norm(c.hidden_size),
            attn=attention(Bidirectional() if full else window),
            norm2=Norm(c.hidden_size),
            mlp=mlp(c.hidden_size, c.intermediate_size, bias=True),
        )

    return Module(
        patch_embed=patch_embed(c, c.hidden_size),
        blocks=each(block, [i in c.fullatt_block_indexes for i in range(c.depth)]),
        merger=two_layer_merger(c, Norm(c.hidden_size), c.hidden_size, c.out_hidden_size),
    ).on(PATCHES)


@register("qwen2_5_vl", Qwen2_5VLConfig)
def qwen2_5_vl(c: Qwen2_5VLConfig) -> Module:
    text = backbone(c.text_config, qwen2_layers(c.text_config))
    return multimodal_lm(c, text, visual=windowed_tower(c.vision_config))
