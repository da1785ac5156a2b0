"""MiniCPM-V 4.6: a Qwen3.5 behind a tower that merges its patches halfway, after attending in windows,
and again behind its last layer."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Literal

from pydantic import Field

from flopcalc.architectures.blocks import Nested, each, multimodal_lm, part
from flopcalc.architectures.towers import PATCHES, ViT, split_attention, vit_layer
from flopcalc.config import Repeats, Size
from flopcalc.estimators import register
from flopcalc.spans import BidirectionalChunk
from flopcalc.tree import Conv, Embedding, LayerNorm, Layers, Linear, Module, Stream


class MiniCPMVVisionConfig(ViT):
    insert_layer_id: int = 6
    window_kernel_size: list[Size] = Field(default=[2, 2])


class MiniCPMV46Config(Nested):
    part_defaults: ClassVar = {"text_config": {"model_type": "qwen3_5_text"}}

    vision_config: MiniCPMVVisionConfig = Field(default_factory=MiniCPMVVisionConfig)
    insert_layer_id: int = 6
    downsample_mode: Literal["4x", "16x"] = "16x"
    merge_kernel_size: list[Size] = Field(default=[2, 2])
    merger_times: Repeats = 1

    def derive(self) -> None:
        super().derive()
        self.vision_config.insert_layer_id = self.insert_layer_id

    @property
    def merges_inside(self) -> bool:
        return self.downsample_mode != "4x" and self.insert_layer_id >= 0


def window_merger(c: MiniCPMVVisionConfig) -> Module:
    """Attention within the windows that two matrices then merge."""
    width, window = c.hidden_size, prod(c.window_kernel_size)
    return Module(
        layer_norm1=LayerNorm(width),
        self_attn=split_attention(width, c.num_attention_heads, BidirectionalChunk(window)),
        **{
            "": Module(
                pre_norm=LayerNorm(window * width),
                linear_1=Linear(window * width, window * c.intermediate_size, True),
                linear_2=Linear(window * c.intermediate_size, width, True),
            ).on(Stream("image", every=window))
        },
    )


def tower(c: MiniCPMVVisionConfig, after: Stream, *, merges: bool) -> Module:
    """The tower; layers behind the inserted merger see the stream `after` it."""
    width, patch = c.hidden_size, (c.patch_size, c.patch_size)
    merger, behind = window_merger(c), [merges and i > c.insert_layer_id for i in range(c.num_hidden_layers)]
    return Module(
        embeddings=Module(
            patch_embedding=Conv(c.num_channels, width, patch, True, "patch_embedding"),
            position_embedding=Embedding(c.num_patches, width, kind="lookup"),
        ),
        vit_merger=merger if merges else merger.never_run(),
        encoder=Module(layers=each(lambda merged: vit_layer(c).on(after if merged else PATCHES), behind)),
        post_layernorm=Module(**{"": LayerNorm(width)}).on(after),
    ).on(PATCHES)


@register("minicpmv4_6", MiniCPMV46Config)
def minicpmv4_6(c: MiniCPMV46Config) -> Module:
    width, merge = c.vision_config.hidden_size, prod(c.merge_kernel_size)
    every = prod(c.vision_config.window_kernel_size) if c.merges_inside else 1

    def round_of_merging(i: int) -> Module:
        last, joined = i == c.merger_times - 1, 4 * width
        out = c.text_config.hidden_size if last else width
        mlp = Module(
            pre_norm=LayerNorm(joined), linear_1=Linear(joined, joined, True), linear_2=Linear(joined, out, True)
        )
        return mlp.on(Stream("image", every=every * merge ** (i + 1)))

    return multimodal_lm(
        c,
        part(c.text_config),
        vision_tower=tower(c.vision_config, Stream("image", every=every), merges=c.merges_inside),
        merger=Module(mlp=Layers(round_of_merging(i) for i in range(c.merger_times))),
    )
