"""GLM-4.1V and 4.5V: GLM-4, dense or MoE, beside a tower of gated MLPs whose patches a convolution merges."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.blocks import (
    Decoder,
    FlatMultimodal,
    attention,
    backbone,
    decoder_layer,
    fused_mlp,
    mlp,
    multimodal_lm,
    with_head,
)
from flopcalc.architectures.glm4 import Glm4MoeConfig, glm4_moe_layers
from flopcalc.architectures.towers import PATCHES, PatchTower, alone, merged, patch_embed, qkv_attention
from flopcalc.config import Count, Size, legacy
from flopcalc.estimators import register, register_part
from flopcalc.spans import Bidirectional, Full
from flopcalc.tree import Conv, Embedding, LayerNorm, Layers, Linear, Module, Norm


class Glm4vTextConfig(Decoder):
    vocab_size: Size = 151552
    intermediate_size: Size = 13696
    num_hidden_layers: Count = 40
    num_key_value_heads: Size | None = 2

    def derive(self) -> None:
        self.head_dim = None  # the model always takes hidden_size / num_attention_heads
        super().derive()


class Glm4vMoeTextConfig(Glm4MoeConfig):
    vocab_size: Size = 151424
    attention_bias: bool = True
    use_qk_norm: bool = legacy(False)

    def derive(self) -> None:
        self.use_qk_norm = False  # the model has none
        super().derive()


class Glm4vVisionConfig(PatchTower):
    depth: Count = 24
    hidden_size: Size = 1536
    num_heads: Size = 12
    intermediate_size: Size = 13696
    out_hidden_size: Size = 4096
    attention_bias: bool = False
    image_size: Size = 336


class Glm4vConfig(FlatMultimodal):
    text_config: Glm4vTextConfig = Field(default_factory=Glm4vTextConfig)
    vision_config: Glm4vVisionConfig = Field(default_factory=Glm4vVisionConfig)


class Glm4vMoeConfig(FlatMultimodal):
    text_config: Glm4vMoeTextConfig = Field(default_factory=Glm4vMoeTextConfig)
    vision_config: Glm4vVisionConfig = Field(default_factory=Glm4vVisionConfig)


@register_part("glm4v_vision", Glm4vVisionConfig)
@register_part("glm4v_moe_vision", Glm4vVisionConfig)
def tower(c: Glm4vVisionConfig) -> Module:
    """The tower. Its MLPs are as wide as its output; the merger as its config's intermediate_size."""
    width, out = c.hidden_size, c.out_hidden_size
    block = Module(
        norm1=Norm(width),
        attn=qkv_attention(width, c.num_heads, Bidirectional(), bias=c.attention_bias, out_bias=False),
        norm2=Norm(width),
        mlp=mlp(width, out),
    )
    merge = (c.spatial_merge_size, c.spatial_merge_size)
    return Module(
        patch_embed=patch_embed(c, width, bias=True),
        post_conv_layernorm=Norm(width),
        embeddings=Module(position_embedding=Embedding((c.image_size // c.patch[1]) ** 2, width, kind="lookup")),
        blocks=Layers([block] * c.depth),
        post_layernorm=Norm(width),
        downsample=alone(Conv(width, out, merge, bias=True), merged(c)),
        merger=Module(
            proj=Linear(out, out), post_projection_norm=LayerNorm(out), **dict(mlp(out, c.intermediate_size).children)
        )
        .reading(gate_proj="post_projection_norm", up_proj="post_projection_norm")
        .on(merged(c)),
    ).on(PATCHES)


@register_part("glm4v_text", Glm4vTextConfig)
def glm4v_text(c: Glm4vTextConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), bias=True, o_bias=False),
        post_self_attn_layernorm=Norm(c.hidden_size),
        mlp=fused_mlp(c.hidden_size, c.intermediate_size),
        post_mlp_layernorm=Norm(c.hidden_size),
    )
    return backbone(c, Layers([layer] * c.num_hidden_layers))


@register_part("glm4v_moe_text", Glm4vMoeTextConfig)
def glm4v_moe_text(c: Glm4vMoeTextConfig) -> Module:
    return backbone(c, glm4_moe_layers(c))


@register("glm4v_text", Glm4vTextConfig)
def glm4v_lm(c: Glm4vTextConfig) -> Module:
    return with_head(c, glm4v_text(c))


@register("glm4v_moe_text", Glm4vMoeTextConfig)
def glm4v_moe_lm(c: Glm4vMoeTextConfig) -> Module:
    return with_head(c, glm4v_moe_text(c))


@register("glm4v", Glm4vConfig)
def glm4v(c: Glm4vConfig) -> Module:
    return multimodal_lm(c, glm4v_text(c.text_config), visual=tower(c.vision_config))


@register("glm4v_moe", Glm4vMoeConfig)
def glm4v_moe(c: Glm4vMoeConfig) -> Module:
    return multimodal_lm(c, glm4v_moe_text(c.text_config), visual=tower(c.vision_config))
