"""The audio tower of Gemma 3n, a conformer: blocks of tokens attend to those shortly before them, and to how far
away these are."""

from __future__ import annotations

from math import prod
from typing import Annotated

from pydantic import Field

from flopcalc.architectures.towers import conformer_mlp, light_conv, near_attention, subsampling
from flopcalc.config import Count, Repeats, Schema, Size
from flopcalc.spans import BlockContext, BlockPositions
from flopcalc.tree import Layers, Linear, Module, Norm, Stream

Two = Annotated[list[Size], Field(min_length=2, max_length=2)]
"""Of each convolution, or over frames and frequencies."""


class Gemma3nAudioConfig(Schema):
    vocab_size: Size = 128
    input_feat_size: Size = 128
    hidden_size: Size = 1536
    conf_attention_chunk_size: Size = 12
    conf_attention_context_left: Count = 13
    conf_attention_context_right: Count = 0
    conf_num_attention_heads: Size = 8
    conf_num_hidden_layers: Repeats = 12
    conf_conv_kernel_size: Size = 5
    conf_reduction_factor: Size = 4
    sscp_conv_channel_size: Two = Field(default=[128, 32])
    sscp_conv_kernel_size: list[Two] = Field(default=[[3, 3], [3, 3]], min_length=2, max_length=2)
    sscp_conv_stride_size: list[Two] = Field(default=[[2, 2], [2, 2]], min_length=2, max_length=2)

    @property
    def every(self) -> int:
        """Frames of a token within the tower."""
        return prod(frames for frames, _ in self.sscp_conv_stride_size)

    @property
    def soft_tokens(self) -> Stream:
        """What leaves the tower."""
        every = self.every * self.conf_reduction_factor
        return Stream("audio", every=every, pad=every - 1)


def conformer(c: Gemma3nAudioConfig) -> Module:
    width, heads = c.hidden_size, c.conf_num_attention_heads
    block = (c.conf_attention_chunk_size, max(c.conf_attention_context_left - 1, 0), c.conf_attention_context_right)
    place = ("relative_position_embedding", "pos_proj")
    attn = near_attention(width, heads, BlockContext(*block), BlockPositions(*block), place=place)
    return Module(
        ffw_layer_start=conformer_mlp(width),
        attention=Module(pre_attn_norm=Norm(width), attn=attn, post=Linear(width, width), post_norm=Norm(width)),
        lconv1d=light_conv(width, c.conf_conv_kernel_size),
        ffw_layer_end=conformer_mlp(width),
        norm=Norm(width),
    )


def audio_tower(c: Gemma3nAudioConfig) -> Module:
    convs = zip(c.sscp_conv_channel_size, c.sscp_conv_kernel_size, c.sscp_conv_stride_size, strict=True)
    return Module(
        subsample_conv_projection=subsampling("conv_", c.input_feat_size, c.hidden_size, convs, Norm),
        conformer=Layers([conformer(c)] * c.conf_num_hidden_layers),
    ).on(Stream("audio", every=c.every, pad=c.every - 1))
