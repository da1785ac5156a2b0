"""Vision towers that several families share: patches meet the tower, merged tokens the merger."""

from __future__ import annotations

from typing import Any

from flopcalc.config import Count, Schema, Size
from flopcalc.spans import Bidirectional, Span
from flopcalc.tree import Attention, Conv, Embedding, LayerNorm, Layers, Linear, Module, Node, Stream

__all__ = [
    "PATCHES",
    "PatchTower",
    "alone",
    "merged",
    "patch_embed",
    "patch_merger",
    "qkv_attention",
    "split_attention",
]

PATCHES = Stream("image")


class PatchTower(Schema):
    """Fields of the towers that take images of any size as patches (Qwen-VL and its kin)."""

    depth: Count = 32
    hidden_size: Size = 1152
    num_heads: Size = 16
    in_channels: Size = 3
    patch_size: Size | list[int] = 14
    temporal_patch_size: Size | list[int] = 2
    spatial_merge_size: Size = 2

    @property
    def patch(self) -> tuple[int, int, int]:
        """The kernel of a patch: frames, rows and columns."""
        size, time = self.patch_size, self.temporal_patch_size
        rows, columns = size if isinstance(size, list) else (size, size)
        return (time[0] if isinstance(time, list) else time, rows, columns)


def merged(c: Any) -> Stream:
    """The stream of merged tokens: one for spatial_merge_size**2 patches."""
    return Stream("image", every=c.spatial_merge_size**2)


def patch_embed(c: PatchTower, width: int, *, bias: bool = False) -> Module:
    """A strided convolution that turns a patch's pixels into one vector."""
    return Module(proj=Conv(c.in_channels, width, c.patch, bias, "patch_embedding"))


def alone(leaf: Node, stream: Stream) -> Module:
    """A leaf that works on a stream of its own, in its own place."""
    return Module(**{"": leaf}).on(stream)


def qkv_attention(width: int, heads: int, span: Span, *, bias: bool = True, out_bias: bool | None = None) -> Module:
    """Attention of a tower with query, key and value in one matrix; `out_bias` defaults to `bias`."""
    dim = width // heads
    return Module(
        qkv=Linear(width, 3 * width, bias),
        core=Attention(heads, dim, dim, span),
        proj=Linear(width, width, bias if out_bias is None else out_bias),
    )


def split_attention(
    width: int,
    heads: int,
    span: Span,
    *,
    bias: bool = True,
    out_bias: bool | None = None,
    out: str = "out_proj",
    names: tuple[str, str, str] = ("q_proj", "k_proj", "v_proj"),
    key_bias: bool | None = None,
    **extra: Node | None,
) -> Module:
    """Attention of a tower with a matrix for each of query, key and value, under the names given."""
    dim, (query, key, value) = width // heads, names
    return Module(
        **{query: Linear(width, width, bias), key: Linear(width, width, bias if key_bias is None else key_bias)},
        **{value: Linear(width, width, bias)},
        **extra,
        core=Attention(heads, dim, dim, span),
        **{out: Linear(width, width, bias if out_bias is None else out_bias)},
    ).reading(*names, **{f"{name[0]}_norm": name for name in (query, key)})


def patch_merger(c: Any, width: int, out: int, *, norm_after: bool = False) -> Module:
    """Neighbouring patches side by side, through a norm and two matrices. The norm is that of a
    patch, or of the joined vector where it comes `norm_after` joining."""
    joined = width * c.spatial_merge_size**2
    return Module(
        norm=LayerNorm(joined if norm_after else width),
        linear_fc1=Linear(joined, joined, True),
        linear_fc2=Linear(joined, out, True),
    ).on(merged(c))


class Qwen3VisionConfig(PatchTower):
    """The tower of Qwen3-VL and later."""

    depth: Count = 27
    intermediate_size: Size = 4304
    out_hidden_size: Size = 3584
    num_position_embeddings: Size = 2304
    patch_size: Size | list[int] = 16


def qwen3_tower(c: Qwen3VisionConfig, **parts: Node) -> Module:
    """The tower of Qwen3-VL and later: learned positions, full attention within a frame."""
    block = Module(
        norm1=LayerNorm(c.hidden_size),
        attn=qkv_attention(c.hidden_size, c.num_heads, Bidirectional()),
        norm2=LayerNorm(c.hidden_size),
        mlp=Module(
            linear_fc1=Linear(c.hidden_size, c.intermediate_size, True),
            linear_fc2=Linear(c.intermediate_size, c.hidden_size, True),
        ),
    )
    return Module(
        patch_embed=patch_embed(c, c.hidden_size, bias=True),
        pos_embed=Embedding(c.num_position_embeddings, c.hidden_size, kind="lookup"),
        blocks=Layers([block] * c.depth),
        merger=patch_merger(c, c.hidden_size, c.out_hidden_size),
        **parts,
    ).on(PATCHES)
