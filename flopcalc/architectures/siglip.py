"""SigLIP's vision tower. Its head pools an image into one vector, which language models do not read."""

from __future__ import annotations

from flopcalc.architectures.blocks import plain_mlp
from flopcalc.architectures.towers import ONE, PATCHES, ViT, alone, encoder_layers, vit_layer
from flopcalc.estimators import register_part
from flopcalc.spans import Probe
from flopcalc.tree import NEVER, Attention, Conv, Embedding, LayerNorm, Linear, Module, Weight

PACKED = "model.vision_tower.head.attention.in_proj_weight"


class SiglipVisionConfig(ViT):
    vision_use_head: bool = True


def pooling_head(c: SiglipVisionConfig) -> Module:
    """Attention of one learned query over an image. One packed parameter projects query, keys and values."""
    width, heads = c.hidden_size, c.num_attention_heads
    attention = Module(
        in_proj_weight=alone(Weight((3 * width, width)), NEVER),  # its parts run, below
        in_proj_bias=Weight((3 * width,), "bias"),
        query=alone(Weight((width, width), "linear", tied_to=PACKED), ONE),
        key_value=Weight((2 * width, width), "linear", tied_to=PACKED),
        core=Attention(heads, width // heads, width // heads, Probe()),
        out_proj=alone(Linear(width, width, True), ONE),
    )
    pooled = Module(
        layernorm=LayerNorm(width), mlp=plain_mlp(width, c.intermediate_size, bias=True, names=("fc1", "fc2"))
    ).on(ONE)
    return Module(probe=Weight((1, 1, width)), attention=attention, **{"": pooled}).without_grad()


@register_part("siglip_vision_model", SiglipVisionConfig)
def siglip_vision_model(c: SiglipVisionConfig, read: int | None = None) -> Module:
    width, patch = c.hidden_size, (c.patch_size, c.patch_size)
    norm = Module(**{"": LayerNorm(width)})
    return Module(
        embeddings=Module(
            patch_embedding=Conv(c.num_channels, width, patch, True, "patch_embedding"),
            position_embedding=Embedding(c.num_patches, width, kind="lookup"),
        ),
        encoder=Module(layers=encoder_layers(vit_layer(c), c.num_hidden_layers, read)),
        post_layernorm=norm if read is None else norm.without_grad(),
        head=pooling_head(c) if c.vision_use_head else None,
    ).on(PATCHES)
