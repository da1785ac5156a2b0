"""GOT-OCR 2: SAM's tower, which attends in windows but for a few layers, over a Qwen2; convolutions bring
16 patches to one token. The few products of queries with tables of relative positions are not counted."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from flopcalc.architectures.blocks import Nested, each, multimodal_lm, part, plain_mlp
from flopcalc.architectures.towers import PATCHES, alone, qkv_attention
from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register, register_part
from flopcalc.spans import Bidirectional, GridWindow
from flopcalc.tree import Conv, LayerNorm, Linear, Module, Stream, Weight


class GotOcr2VisionConfig(Schema):
    hidden_size: Size = 768
    output_channels: Size = 256
    num_hidden_layers: Count = 12
    num_attention_heads: Size = 12
    num_channels: Size = 3
    image_size: Size = 1024
    patch_size: Size = 16
    qkv_bias: bool = True
    use_abs_pos: bool = True
    use_rel_pos: bool = True
    window_size: Count = 14
    global_attn_indexes: list[int] = Field(default=[2, 5, 8, 11])
    mlp_dim: Size = 3072


class GotOcr2Config(Nested):
    part_defaults: ClassVar = {
        "text_config": {
            "model_type": "qwen2", "vocab_size": 151860, "hidden_size": 1024, "intermediate_size": 2816,
            "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16, "max_window_layers": 21,
        },
    }  # fmt: skip

    vision_config: GotOcr2VisionConfig = Field(default_factory=GotOcr2VisionConfig)
    tie_word_embeddings: bool = True


@register_part("got_ocr2_vision", GotOcr2VisionConfig)
def sam_tower(c: GotOcr2VisionConfig) -> Module:
    width, out, side = c.hidden_size, c.output_channels, c.image_size // c.patch_size

    def layer(window: int) -> Module:
        table = Weight((2 * (window or side) - 1, width // c.num_attention_heads)) if c.use_rel_pos else None
        span = GridWindow(window) if window else Bidirectional()
        attn = qkv_attention(width, c.num_attention_heads, span, bias=c.qkv_bias, out_bias=True)
        tables = {} if table is None else {"rel_pos_h": table, "rel_pos_w": table}
        return Module(
            layer_norm1=LayerNorm(width),
            attn=attn.holding(**tables),
            layer_norm2=LayerNorm(width),
            mlp=plain_mlp(width, c.mlp_dim, bias=True, names=("lin1", "lin2")),
        )

    patch = (c.patch_size, c.patch_size)
    return Module(
        patch_embed=Module(projection=Conv(c.num_channels, width, patch, True, "patch_embedding")),
        pos_embed=Weight((1, side, side, width), "lookup") if c.use_abs_pos else None,
        layers=each(layer, (0 if i in c.global_attn_indexes else c.window_size for i in range(c.num_hidden_layers))),
        neck=Module(
            conv1=Conv(width, out, (1, 1)),
            layer_norm1=LayerNorm(out),
            conv2=Conv(out, out, (3, 3)),
            layer_norm2=LayerNorm(out),
        ),
    ).on(PATCHES)


@register("got_ocr2", GotOcr2Config)
def got_ocr2(c: GotOcr2Config) -> Module:
    hidden, channels = c.text_config.hidden_size, c.vision_config.output_channels
    projector = Module(
        conv_upsampler1=alone(Conv(channels, 2 * channels, (3, 3)), Stream("image", every=4)),
        conv_upsampler2=Conv(2 * channels, hidden, (3, 3)),
        multimodal_projector=Linear(hidden, hidden, True),
    ).on(Stream("image", every=16))
    return multimodal_lm(
        c, part(c.text_config), vision_tower=sam_tower(c.vision_config), multi_modal_projector=projector
    )
