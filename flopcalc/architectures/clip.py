"""CLIP's vision tower: a class token leads the patches."""

from __future__ import annotations

from flopcalc.architectures.towers import ONE, PATCHES, PATCHES_AND_CLASS, ViT, alone, encoder_layers, vit_layer
from flopcalc.config import Size
from flopcalc.estimators import register_part
from flopcalc.tree import Conv, Embedding, LayerNorm, Module, Weight


class ClipVisionConfig(ViT):
    patch_size: Size = 32


@register_part("clip_vision_model", ClipVisionConfig)
def clip_vision_model(c: ClipVisionConfig, read: int | None = None) -> Module:
    width, patch = c.hidden_size, (c.patch_size, c.patch_size)
    return Module(
        embeddings=Module(
            class_embedding=Weight((width,)),
            patch_embedding=alone(Conv(c.num_channels, width, patch, kind="patch_embedding"), PATCHES),
            position_embedding=Embedding(c.num_patches + 1, width, kind="lookup"),
        ),
        pre_layrnorm=LayerNorm(width),
        encoder=Module(layers=encoder_layers(vit_layer(c), c.num_hidden_layers, read)),
        post_layernorm=alone(LayerNorm(width), ONE).without_grad(),  # of the class token, which no one reads
    ).on(PATCHES_AND_CLASS)
