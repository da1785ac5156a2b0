"""MobileNet-V5, the vision tower of Gemma 3n: inverted bottlenecks, later with attention between them whose
heads share one key and value, and an adapter that fuses the last two resolutions.

No config says the structure: `architecture` names it, timm's `mobilenetv5_300m_enc`, and this file follows that.
An image counts in patches of 16 x 16 pixels, the cells of the last resolution but one: 48 x 48 of Gemma 3n's.
"""

from __future__ import annotations

from flopcalc.spans import Bidirectional, Pooled
from flopcalc.tree import Attention, Conv, Layers, Module, Norm, Stream, Weight

__all__ = ["OUT", "SOFT_TOKENS", "mobilenetv5_300m_enc"]

OUT = 2048
"""Width of what leaves the tower."""
SOFT_TOKENS = Stream("image", rows=0, extra=16 * 16)
"""What leaves the tower, pooled to as many whatever the size of an image."""


def cells(pixels: int) -> Stream:
    """Places of a resolution that has one for so many pixels on either side."""
    return Stream("image", rows=(16 // pixels) ** 2) if pixels <= 16 else Stream("image", every=(pixels // 16) ** 2)


def mixing(read: int, out: int) -> Conv:
    return Conv(read, out, (1, 1))


def depthwise(channels: int, taps: int) -> Conv:
    return Conv(1, channels, (taps, taps), kind="conv")


def normed(conv: Conv) -> Module:
    return Module(conv=conv, bn=Norm(conv.out_channels))


def scale(width: int) -> Module:
    return Module(gamma=Weight((width,)))


def edge(read: int, out: int, expansion: int) -> Module:
    """A bottleneck whose first convolution mixes channels and neighbours at once."""
    wide = read * expansion
    return Module(conv_exp=Conv(read, wide, (3, 3)), bn1=Norm(wide), conv_pwl=mixing(wide, out), bn2=Norm(out))


def inverted(read: int, out: int, expansion: int, taps: int = 0) -> Module:
    """A bottleneck: wide within, depthwise taps before it where there are any."""
    wide = read * expansion
    return Module(
        dw_start=normed(depthwise(read, taps)) if taps else None,
        pw_exp=normed(mixing(read, wide)),
        pw_proj=normed(mixing(wide, out)),
    )


def halving(read: int, out: int, taps: int, finer: Stream) -> Module:
    """The bottleneck that opens a stage: taps within it step over every second place of the `finer` resolution."""
    wide = 6 * read
    return Module(
        **{"": Module(dw_start=normed(depthwise(read, taps)), pw_exp=normed(mixing(read, wide))).on(finer)},
        dw_mid=normed(depthwise(wide, 5)),
        pw_proj=normed(mixing(wide, out)),
        layer_scale=scale(out),
    )


def attention(width: int, heads: int, dim: int, *, pooled: bool) -> Module:
    """Queries of all places; keys and values of as many, or of the next coarser resolution."""

    def shared() -> Module:
        taps = {"down_conv": depthwise(width, 3), "norm": Norm(width)} if pooled else {}
        return Module(**taps, proj=mixing(width, dim)).on(cells(32)) if pooled else Module(proj=mixing(width, dim))

    attn = Module(
        query=Module(proj=mixing(width, heads * dim)),
        key=shared(),
        value=shared(),
        core=Attention(heads, dim, dim, Pooled(4) if pooled else Bidirectional()),
        output=Module(proj=mixing(heads * dim, width)),
    ).reading("query", "key", "value")
    return Module(norm=Norm(width), attn=attn, layer_scale=scale(width))


def mobilenetv5_300m_enc() -> Module:
    """The tower, about 294 million parameters."""

    def scaled(width: int, expansion: int, taps: int = 0) -> Module:
        return inverted(width, width, expansion, taps).holding(layer_scale=scale(width))

    first = [edge(64, 128, 4), *[edge(128, 128, 4)] * 2]
    second = [halving(128, 256, 3, cells(4)), *[scaled(256, 4, 5), scaled(256, 4, 3)] * 2]
    pooling, between = attention(640, 12, 64, pooled=True), scaled(640, 2)
    third = [halving(256, 640, 5, cells(8)), *[scaled(640, 4, 5)] * 7, scaled(640, 1), *[pooling, between] * 14]
    attending, wider = attention(1280, 16, 96, pooled=False), scaled(1280, 2)
    fourth = [halving(640, 1280, 5, cells(16)), *[attending, wider] * 19]
    stages = [(first, 4), (second, 8), (third, 16), (fourth, 32)]
    return Module(
        conv_stem=Module(conv=Conv(3, 64, (3, 3), True, "patch_embedding"), bn=Norm(64)).on(cells(2)),
        blocks=Layers(Layers(blocks).on(cells(pixels)) for blocks, pixels in stages),
        msfa=Module(ffn=inverted(640 + 1280, OUT, 2), norm=Module(**{"": Norm(OUT)}).on(SOFT_TOKENS)),
    ).on(cells(16))
