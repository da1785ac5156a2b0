"""The audio tower of Gemma 3n, a conformer: blocks of tokens attend to those shortly before them, and to how far
away these are."""

from __future__ import annotations

from math import prod
from typing import Annotated

from pydantic import Field

from flopcalc.architectures.blocks import plain_mlp
from flopcalc.architectures.towers import alone
from flopcalc.config import Count, Repeats, Schema, Size
from flopcalc.spans import BlockContext, BlockPositions
from flopcalc.tree import Attention, Conv, Conv1d, Layers, Linear, Module, Norm, Stream, Weight

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


def subsampling(c: Gemma3nAudioConfig) -> Module:
    """Two convolutions over frames and frequencies; the frequencies that are left become one vector."""
    convs, read, every, bins = {}, 1, 1, c.input_feat_size
    shapes = zip(c.sscp_conv_channel_size, c.sscp_conv_kernel_size, c.sscp_conv_stride_size, strict=True)
    for i, (channels, kernel, (frames, frequencies)) in enumerate(shapes):
        every, bins = every * frames, (bins + 2 - kernel[1]) // frequencies + 1
        conv = Module(conv=Conv(read, channels, tuple(kernel)), norm=Norm(channels))
        convs[f"conv_{i}"], read = conv.on(Stream("audio", every=every, pad=every - 1, rows=bins)), channels
    return Module(**convs, input_proj_linear=Linear(read * bins, c.hidden_size))


def conformer(c: Gemma3nAudioConfig) -> Module:
    width, heads = c.hidden_size, c.conf_num_attention_heads
    dim = width // heads
    block = (c.conf_attention_chunk_size, max(c.conf_attention_context_left - 1, 0), c.conf_attention_context_right)
    context, positions = BlockContext(*block), BlockPositions(*block)
    distances = Stream("audio", rows=0, extra=positions.reach)
    attn = Module(
        q_proj=Linear(width, heads * dim),
        k_proj=Linear(width, heads * dim),
        v_proj=Linear(width, heads * dim),
        per_dim_scale=Weight((dim,)),
        relative_position_embedding=Module(
            pos_proj=alone(Linear(width, heads * dim), distances), scores=Attention(heads, dim, 0, positions)
        ).reading(pos_proj=""),
        core=Attention(heads, dim, dim, context),
    ).reading("q_proj", "k_proj", "v_proj", relative_position_embedding="q_proj")
    feed_forward = Module(
        pre_layer_norm=Norm(width),
        **dict(plain_mlp(width, 4 * width, names=("ffw_layer_1", "ffw_layer_2")).children),
        post_layer_norm=Norm(width),
    )
    return Module(
        ffw_layer_start=feed_forward,
        attention=Module(pre_attn_norm=Norm(width), attn=attn, post=Linear(width, width), post_norm=Norm(width)),
        lconv1d=Module(
            pre_layer_norm=Norm(width),
            linear_start=Linear(width, 2 * width),
            depthwise_conv1d=Conv1d(width, c.conf_conv_kernel_size),
            conv_norm=Norm(width),
            linear_end=Linear(width, width),
        ),
        ffw_layer_end=feed_forward,
        norm=Norm(width),
    )


def audio_tower(c: Gemma3nAudioConfig) -> Module:
    """The tower. Positions are counted for every audio by itself, though a batch shares them."""
    return Module(
        subsample_conv_projection=subsampling(c),
        conformer=Layers([conformer(c)] * c.conf_num_hidden_layers),
    ).on(Stream("audio", every=c.every, pad=c.every - 1))
