"""Pixtral's vision tower: llama's layer without causality, images of any size."""

from __future__ import annotations

from flopcalc.architectures.blocks import mlp
from flopcalc.architectures.towers import PATCHES, ViT, encoder_layers, split_attention
from flopcalc.config import Count, Size
from flopcalc.estimators import register_part
from flopcalc.spans import Bidirectional
from flopcalc.tree import Conv, Module, Norm


class PixtralVisionConfig(ViT):
    hidden_size: Size = 1024
    intermediate_size: Size = 4096
    num_hidden_layers: Count = 24
    num_attention_heads: Size = 16
    image_size: Size = 1024


@register_part("pixtral", PixtralVisionConfig)
def pixtral(c: PixtralVisionConfig, read: int | None = None) -> Module:
    width, patch = c.hidden_size, (c.patch_size, c.patch_size)
    layer = Module(
        attention_norm=Norm(width),
        attention=split_attention(width, c.num_attention_heads, Bidirectional(), bias=False, out="o_proj"),
        ffn_norm=Norm(width),
        feed_forward=mlp(width, c.intermediate_size),
    )
    return Module(
        patch_conv=Conv(c.num_channels, width, patch, kind="patch_embedding"),
        ln_pre=Norm(width),
        transformer=Module(layers=encoder_layers(layer, c.num_hidden_layers, read)),
    ).on(PATCHES)
