"""InternVL 3: any language model behind InternViT, whose patches are shuffled into fewer, wider tokens."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from flopcalc.architectures.blocks import Nested, multimodal_lm, part, plain_mlp
from flopcalc.architectures.towers import (
    PATCHES,
    PATCHES_AND_CLASS,
    FeatureLayers,
    Sides,
    alone,
    encoder_layers,
    split_attention,
    two_linears,
)
from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional
from flopcalc.tree import Conv, LayerNorm, Module, Node, Norm, Stream, Weight


class InternVLVisionConfig(Schema):
    hidden_size: Size = 1024
    intermediate_size: Size = 4096
    num_hidden_layers: Count = 24
    num_attention_heads: Size = 16
    num_channels: Size = 3
    image_size: Sides = Field(default=[448, 448])
    patch_size: Sides = Field(default=[14, 14])
    attention_bias: bool = False
    use_qk_norm: bool = False
    norm_type: Literal["layer_norm", "rms_norm"] = "layer_norm"
    use_mask_token: bool = False
    use_absolute_position_embeddings: bool = True
    use_mean_pooling: bool = True

    @field_validator("image_size", "patch_size", mode="before")
    @classmethod
    def _both_sides(cls, size: object) -> object:
        return [size, size] if isinstance(size, int) else size


class InternVLConfig(Nested, FeatureLayers):
    part_defaults: ClassVar = {"text_config": {"model_type": "qwen2"}}

    tie_word_embeddings: bool = True
    vision_config: InternVLVisionConfig = Field(default_factory=InternVLVisionConfig)
    downsample_ratio: float = Field(default=0.5, gt=0, le=1)

    def derive(self) -> None:
        super().derive()
        self.layers_read(self.vision_config)

    @property
    def merge(self) -> int:
        """How many patches make one token."""
        return int(1 / self.downsample_ratio) ** 2


def tower(c: InternVLVisionConfig, read: int) -> Module:
    width = c.hidden_size
    rows, columns = (image // patch for image, patch in zip(c.image_size, c.patch_size, strict=True))

    def norm(dim: int) -> Node:
        return LayerNorm(dim) if c.norm_type == "layer_norm" else Norm(dim)

    attention = split_attention(
        width,
        c.num_attention_heads,
        Bidirectional(),
        bias=c.attention_bias,
        out_bias=True,
        out="projection_layer",
        q_norm=Norm(width, "head_norm") if c.use_qk_norm else None,
        k_norm=Norm(width, "head_norm") if c.use_qk_norm else None,
    )
    layer = Module(
        layernorm_before=norm(width),
        attention=attention,
        lambda_1=Weight((width,)),
        layernorm_after=norm(width),
        mlp=plain_mlp(width, c.intermediate_size, bias=True, names=("fc1", "fc2")),
        lambda_2=Weight((width,)),
    )
    positions = Weight((1, rows * columns + 1, width), "lookup") if c.use_absolute_position_embeddings else None
    patch = Conv(c.num_channels, width, tuple(c.patch_size), True, "patch_embedding")
    return Module(
        embeddings=Module(
            cls_token=Weight((1, 1, width)),
            mask_token=Weight((1, 1, width)) if c.use_mask_token else None,
            position_embeddings=positions,
            patch_embeddings=Module(projection=alone(patch, PATCHES)),
        ).reading("patch_embeddings"),
        encoder=Module(layer=encoder_layers(layer, c.num_hidden_layers, read)),
        layernorm=None if c.use_mean_pooling else LayerNorm(width),
    ).on(PATCHES_AND_CLASS)


@register("internvl", InternVLConfig)
def internvl(c: InternVLConfig) -> Module:
    vision, out = c.vision_config, c.text_config.hidden_size
    read = c.merge * vision.hidden_size
    projector = two_linears(read, out, layer_norm=LayerNorm(read)).on(Stream("image", every=c.merge))
    visual = tower(vision, c.layers_read(vision))
    return multimodal_lm(c, part(c.text_config), vision_tower=visual, multi_modal_projector=projector)
