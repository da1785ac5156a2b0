"""The vision towers of SigLIP and SigLIP 2. Their head pools an image into one vector, which language
models do not read."""

from __future__ import annotations

from flopcalc.architectures.blocks import plain_mlp
from flopcalc.architectures.towers import (
    ONE,
    PATCHES,
    ViT,
    ViTLayers,
    encoder_layers,
    packed_attention,
    vit_layer,
)
from flopcalc.config import Size
from flopcalc.estimators import register_part
from flopcalc.spans import Span
from flopcalc.tree import Conv, Embedding, LayerNorm, Linear, Module, Node, Stream, Weight

HEAD = "model.vision_tower.head"


class SiglipVisionConfig(ViT):
    vision_use_head: bool = True


class Siglip2VisionConfig(ViTLayers):
    vision_use_head: bool = True
    num_patches: Size = 256


def pooling_head(c: ViTLayers, at: str = HEAD, pooled: Stream = ONE) -> Module:
    """Attention of one learned query over an image; the head stands `at` this full name."""
    width = c.hidden_size
    attention = packed_attention(width, c.num_attention_heads, 1, f"{at}.attention", pooled)
    behind = Module(
        layernorm=LayerNorm(width), mlp=plain_mlp(width, c.intermediate_size, bias=True, names=("fc1", "fc2"))
    ).on(pooled)
    return Module(probe=Weight((1, 1, width)), attention=attention, **{"": behind}).without_grad()


def siglip_tower(c: ViT, read: int | None = None, span: Span | None = None, **behind: Node | None) -> Module:
    """Patches through a convolution, layers and a norm; what comes `behind` as keywords. The patches of an
    image attend to each other unless a `span` is given."""
    patch = (c.patch_size, c.patch_size)
    embedding = Conv(c.num_channels, c.hidden_size, patch, True, "patch_embedding")
    return tower(c, embedding, c.num_patches, read, span, **behind)


def tower(
    c: ViTLayers,
    patch_embedding: Node,
    positions: int,
    read: int | None,
    span: Span | None = None,
    **behind: Node | None,
) -> Module:
    norm = Module(**{"": LayerNorm(c.hidden_size)})
    return Module(
        embeddings=Module(
            patch_embedding=patch_embedding,
            position_embedding=Embedding(positions, c.hidden_size, kind="lookup"),
        ),
        encoder=Module(layers=encoder_layers(vit_layer(c, span), c.num_hidden_layers, read)),
        post_layernorm=norm if read is None else norm.without_grad(),
        **behind,
    ).on(PATCHES)


@register_part("siglip_vision_model", SiglipVisionConfig)
def siglip_vision_model(c: SiglipVisionConfig, read: int | None = None) -> Module:
    return siglip_tower(c, read, head=pooling_head(c) if c.vision_use_head else None)


@register_part("siglip2_vision_model", Siglip2VisionConfig)
def siglip2_vision_model(c: Siglip2VisionConfig) -> Module:
    """Images of any size, cut into patches beforehand; learned positions are stretched over them by a
    product with weights of an interpolation, which is not counted."""
    patches = Linear(c.num_channels * c.patch_size**2, c.hidden_size, True, "patch_embedding")
    head = pooling_head(c) if c.vision_use_head else None
    return tower(c, patches, c.num_patches, None, head=head)
