"""Qwen2-VL: Qwen2 beside a tower of full attention within each frame."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.blocks import FlatMultimodal, backbone, causal_lm, multimodal_lm, plain_mlp
from flopcalc.architectures.qwen2 import Qwen2Config, qwen2_layers
from flopcalc.architectures.towers import PATCHES, PatchTower, patch_embed, qkv_attention, two_layer_merger
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional
from flopcalc.tree import LayerNorm, Layers, Module


class Qwen2VLTextConfig(Qwen2Config):
    vocab_size: Size = 152064
    hidden_size: Size = 8192
    intermediate_size: Size = 29568
    num_hidden_layers: Count = 80
    num_attention_heads: Size = 64
    num_key_value_heads: Size | None = 8
    max_window_layers: Count = 80

    def derive(self) -> None:
        self.head_dim = None  # the model always takes hidden_size / num_attention_heads
        super().derive()


class Qwen2VLVisionConfig(PatchTower):
    embed_dim: Size = 1280
    hidden_size: Size = 3584
    mlp_ratio: Size = 4


class Qwen2VLConfig(FlatMultimodal):
    text_config: Qwen2VLTextConfig = Field(default_factory=Qwen2VLTextConfig)
    vision_config: Qwen2VLVisionConfig = Field(default_factory=Qwen2VLVisionConfig)


def tower(c: Qwen2VLVisionConfig) -> Module:
    width = c.embed_dim
    block = Module(
        norm1=LayerNorm(width),
        attn=qkv_attention(width, c.num_heads, Bidirectional()),
        norm2=LayerNorm(width),
        mlp=plain_mlp(width, c.mlp_ratio * width, bias=True, names=("fc1", "fc2")),
    )
    return Module(
        patch_embed=patch_embed(c, width),
        blocks=Layers([block] * c.depth),
        merger=two_layer_merger(c, LayerNorm(width), width, c.hidden_size),
    ).on(PATCHES)


@register("qwen2_vl_text", Qwen2VLTextConfig)
@register("qwen2_5_vl_text", Qwen2VLTextConfig)
def qwen2_vl_text(c: Qwen2VLTextConfig) -> Module:
    return causal_lm(c, qwen2_layers(c))


@register("qwen2_vl", Qwen2VLConfig)
def qwen2_vl(c: Qwen2VLConfig) -> Module:
    return multimodal_lm(c, backbone(c.text_config, qwen2_layers(c.text_config)), visual=tower(c.vision_config))
