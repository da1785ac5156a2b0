"""CLIP's vision tower: a class token leads the patches."""

from __future__ import annotations

from flopcalc.architectures.towers import ONE, PATCHES, PATCHES_AND_CLASS, ViT, alone, encoder_layers, vit_layer
from flopcalc.config import Size
from flopcalc.estimators import register_part
from flopcalc.spans import Span
from flopcalc.tree import Conv, Embedding, LayerNorm, Module, Stream, Weight


class ClipVisionConfig(ViT):
    patch_size: Size = 32


def clip_tower(
    c: ClipVisionConfig,
    read: int | None = None,
    *,
    patches: Stream = PATCHES,
    tokens: Stream = PATCHES_AND_CLASS,
    images: Stream = ONE,
    span: Span | None = None,
) -> Module:
    """The tower; an image that is cut into crops says what it is made of, and what attends to what."""
    width, patch = c.hidden_size, (c.patch_size, c.patch_size)
    return Module(
        embeddings=Module(
            class_embedding=Weight((width,)),
            patch_embedding=alone(Conv(c.num_channels, width, patch, kind="patch_embedding"), patches),
            position_embedding=Embedding(c.num_patches + 1, width, kind="lookup"),
        ).reading("patch_embedding"),
        pre_layrnorm=LayerNorm(width),
        encoder=Module(layers=encoder_layers(vit_layer(c, span), c.num_hidden_layers, read)),
        post_layernorm=alone(LayerNorm(width), images).without_grad(),  # of the class token, which no one reads
    ).on(tokens)


@register_part("clip_vision_model", ClipVisionConfig)
def clip_vision_model(c: ClipVisionConfig, read: int | None = None) -> Module:
    return clip_tower(c, read)
