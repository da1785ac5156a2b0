"""Towers that several families share: patches meet a vision tower, merged tokens the merger, frames an audio
encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

from pydantic import Field

from flopcalc.architectures.blocks import plain_mlp
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.spans import Bidirectional, BidirectionalChunk, BlockContext, BlockPositions, Probe, Span
from flopcalc.tree import (
    NEVER,
    Attention,
    Conv,
    Conv1d,
    Embedding,
    LayerNorm,
    Layers,
    Linear,
    Module,
    Node,
    Norm,
    Stream,
    Weight,
)

__all__ = [
    "ONE",
    "PATCHES",
    "PATCHES_AND_CLASS",
    "HALVED",
    "FeatureLayers",
    "PatchTower",
    "Sides",
    "ViT",
    "ViTLayers",
    "WhisperEncoder",
    "alone",
    "audio_layer",
    "check_vit",
    "conformer_mlp",
    "encoder_layers",
    "layers_until",
    "light_conv",
    "merged",
    "near_attention",
    "packed_attention",
    "patch_embed",
    "patch_merger",
    "qkv_attention",
    "split_attention",
    "subsampling",
    "two_layer_merger",
    "two_linears",
    "vit_layer",
    "whisper_encoder",
]

PATCHES = Stream("image")
PATCHES_AND_CLASS = Stream("image", extra=1)
ONE = Stream("image", rows=0, extra=1)
"""One vector an image."""
HALVED = Stream("audio", every=2, pad=1)
"""Frames of an audio, halved by a convolution that rounds up."""


class ViTLayers(Schema):
    """Fields of a plain stack of layers over square patches."""

    hidden_size: Size = 768
    intermediate_size: Size = 3072
    num_hidden_layers: Count = 12
    num_attention_heads: Size = 12
    num_channels: Size = 3
    patch_size: Size = 16


class ViT(ViTLayers):
    """Fields of the towers that take images of a fixed size."""

    image_size: Size = 224

    @property
    def num_patches(self) -> int:
        return (self.image_size // self.patch_size) ** 2


def check_vit(vision: Any) -> None:
    """ValueError where a vision_config is that of a tower of another make, or of no tower."""
    if not hasattr(vision, "image_size"):
        raise ValueError(f"vision_config: found a {vision.read_as}, expected a tower that takes whole images")


class FeatureLayers(Schema):
    """Which layers of a tower the language model reads: numbers of hidden states, that of the
    embeddings being 0, or those from the end."""

    vision_feature_layer: int | list[int] = -1

    @property
    def num_features(self) -> int:
        return len(self.vision_feature_layer) if isinstance(self.vision_feature_layer, list) else 1

    def layers_read(self, vision: Any) -> int:
        """How many layers of the tower lead to what is read. ValueError where there is no such layer."""
        check_vit(vision)
        chosen = self.vision_feature_layer
        states = chosen if isinstance(chosen, list) else [chosen]
        return layers_until("vision_feature_layer", states, vision.num_hidden_layers)


def layers_until(field: str, states: list[int], depth: int) -> int:
    """How many of a tower's `depth` layers lead to these hidden states, the last of which may be -1. ValueError
    naming the field where there is no such layer."""
    for state in states:
        if not -depth - 1 <= state <= depth:
            raise ValueError(f"{field}: found {state}, expected a layer of the tower's {depth}")
    return max((state % (depth + 1) for state in states), default=0)


def encoder_layers(layer: Module, depth: int, read: int | None) -> Layers:
    """The layers of a tower; those after the last one that is `read` run forward for nothing."""
    read = depth if read is None else read
    return Layers([layer] * read + [layer.without_grad()] * (depth - read))


def vit_layer(c: ViTLayers, span: Span | None = None) -> Module:
    """The layer that CLIP and SigLIP have, attending to all of an image unless a `span` is given."""
    width = c.hidden_size
    return Module(
        layer_norm1=LayerNorm(width),
        self_attn=split_attention(width, c.num_attention_heads, span or Bidirectional()),
        layer_norm2=LayerNorm(width),
        mlp=plain_mlp(width, c.intermediate_size, bias=True, names=("fc1", "fc2")),
    )


def two_linears(read: int, out: int, *, bias: bool = True, **before: Node) -> Module:
    """A projector of two matrices, as LLaVA's; what comes `before` them as keywords."""
    return Module(**before, linear_1=Linear(read, out, bias), linear_2=Linear(out, out, bias))


Sides = Annotated[list[Size], Field(min_length=2, max_length=2)]
"""Rows and columns."""


class PatchTower(Schema):
    """Fields of the towers that take images of any size as patches (Qwen-VL and its kin)."""

    depth: Count = 32
    hidden_size: Size = 1152
    num_heads: Size = 16
    in_channels: Size = 3
    patch_size: Size | Sides = 14
    temporal_patch_size: Size | Annotated[list[Size], Field(min_length=1)] = 2
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


def qkv_attention(
    width: int, heads: int, span: Span, *, bias: bool = True, out_bias: bool | None = None, **norms: Node
) -> Module:
    """Attention of a tower with query, key and value in one matrix; `out_bias` defaults to `bias`."""
    dim = width // heads
    return Module(
        qkv=Linear(width, 3 * width, bias),
        **norms,
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


def packed_attention(width: int, heads: int, queries: int, path: str, asking: Stream | None = None) -> Module:
    """Attention of learned queries over an image, `nn.MultiheadAttention` at the full name `path`: one packed
    parameter projects query, keys and values. What is `asking`: so many queries an image, unless it is given."""
    packed, asking = f"{path}.in_proj_weight", asking or Stream("image", rows=0, extra=queries)
    return Module(
        in_proj_weight=alone(Weight((3 * width, width)), NEVER),  # its parts run, below
        in_proj_bias=Weight((3 * width,), "bias"),
        query=alone(Weight((width, width), "linear", tied_to=packed), asking),
        key_value=Weight((2 * width, width), "linear", tied_to=packed),
        core=Attention(heads, width // heads, width // heads, Probe(queries)),
        out_proj=alone(Linear(width, width, True), asking),
    )


def patch_merger(c: Any, width: int, out: int, *, norm_after: bool = False) -> Module:
    """Neighbouring patches side by side, through a norm and two matrices. The norm is that of a
    patch, or of the joined vector where it comes `norm_after` joining."""
    joined = width * c.spatial_merge_size**2
    return Module(
        norm=LayerNorm(joined) if norm_after else alone(LayerNorm(width), PATCHES),
        linear_fc1=Linear(joined, joined, True),
        linear_fc2=Linear(joined, out, True),
    ).on(merged(c))


def two_layer_merger(c: Any, norm: Node, width: int, out: int, *, norm_after: bool = False) -> Module:
    """Neighbouring patches side by side through two matrices, after a norm: that of a patch, or of the
    joined vector where it comes `norm_after` joining."""
    joined = width * c.spatial_merge_size**2
    projections = {"0": Linear(joined, joined, True), "2": Linear(joined, out, True)}
    return Module(ln_q=norm if norm_after else alone(norm, PATCHES), mlp=Module(**projections)).on(merged(c))


class WhisperEncoder(Schema):
    """Fields of Whisper's encoder, as part of models that hear."""

    num_mel_bins: Size = 128
    num_hidden_layers: Count = aliases("encoder_layers", "num_hidden_layers", default=32)
    num_attention_heads: Size = aliases("encoder_attention_heads", "num_attention_heads", default=20)
    intermediate_size: Size = aliases("encoder_ffn_dim", "intermediate_size", default=5120)
    hidden_size: Size = aliases("d_model", "hidden_size", default=1280)
    max_source_positions: Size = 1500


def audio_layer(width: int, heads: int, inner: int, window: int, *, key_bias: bool) -> Module:
    """Whisper's layer, attending within chunks of `window` tokens."""
    return Module(
        self_attn_layer_norm=LayerNorm(width),
        self_attn=split_attention(width, heads, BidirectionalChunk(window), key_bias=key_bias),
        final_layer_norm=LayerNorm(width),
        fc1=Linear(width, inner, True),
        fc2=Linear(inner, width, True),
    )


def whisper_encoder(c: WhisperEncoder, *, filled: bool = False, pooled: Stream | None = None) -> Module:
    """Whisper's encoder: its second convolution halves the frames, and each chunk has as many tokens as there are
    positions. The last chunk counts as `filled` up where its padding is not left out behind the encoder; the last
    norm may work on tokens that are `pooled` before it."""
    width, places = c.hidden_size, c.max_source_positions
    frames, tokens = Stream("audio"), HALVED
    if filled:
        frames, tokens = (
            Stream("audio", every=2 * places, pad=2 * places - 1, rows=rows) for rows in (2 * places, places)
        )
    layer = audio_layer(width, c.num_attention_heads, c.intermediate_size, places, key_bias=False)
    return Module(
        conv1=alone(Conv(c.num_mel_bins, width, (3,), True), frames),
        conv2=Conv(width, width, (3,), True),
        embed_positions=Embedding(places, width, kind="lookup"),
        layers=Layers([layer] * c.num_hidden_layers),
        layer_norm=alone(LayerNorm(width), pooled or tokens),
    ).on(tokens)


def subsampling(
    name: str,
    bins: int,
    width: int,
    convs: Iterable[tuple[int, Sequence[int], Sequence[int]]],
    norm: Callable[[int], Node],
) -> Module:
    """Convolutions over frames and frequencies (`bins`), padded by one: channels, kernel and stride of each. The
    channels of the frequencies that are left become one vector."""
    layers, read, every = {}, 1, 1
    for i, (channels, kernel, (frames, frequencies)) in enumerate(convs):
        every, bins = every * frames, (bins + 2 - kernel[1]) // frequencies + 1
        layer = Module(conv=Conv(read, channels, tuple(kernel)), norm=norm(channels))
        layers[f"{name}{i}"], read = layer.on(Stream("audio", every=every, pad=every - 1, rows=bins)), channels
    return Module(**layers, input_proj_linear=Linear(read * bins, width))


Matrix = Callable[[int, int], Node]


def conformer_mlp(width: int, matrix: Matrix = Linear) -> Module:
    """The MLP before attention, or behind the convolution, of a conformer."""
    return Module(
        pre_layer_norm=Norm(width),
        ffw_layer_1=matrix(width, 4 * width),
        ffw_layer_2=matrix(4 * width, width),
        post_layer_norm=Norm(width),
    )


def light_conv(width: int, kernel: int, matrix: Matrix = Linear) -> Module:
    """The convolution of a conformer: a gate, taps over time, and a matrix."""
    return Module(
        pre_layer_norm=Norm(width),
        linear_start=matrix(width, 2 * width),
        depthwise_conv1d=Conv1d(width, kernel),
        conv_norm=Norm(width),
        linear_end=matrix(width, width),
    )


def near_attention(
    width: int,
    heads: int,
    context: BlockContext,
    positions: BlockPositions,
    *,
    place: tuple[str, str],
    matrix: Matrix = Linear,
) -> Module:
    """Attention of a conformer to the tokens nearby and to how far away these are: `place` names the module and the
    matrix that turns the angles of each distance into keys. They are counted for every audio by itself, though a
    batch shares them."""
    dim, (module, keys) = width // heads, place
    distances = Stream("audio", rows=0, extra=positions.meets)
    near = Module(
        **{keys: alone(Linear(width, heads * dim), distances)},
        position_scores=Attention(heads, dim, 0, positions),
    ).reading(**{keys: ""})
    return Module(
        q_proj=matrix(width, heads * dim),
        k_proj=matrix(width, heads * dim),
        v_proj=matrix(width, heads * dim),
        per_dim_scale=Weight((dim,)),
        **{module: near},
        core=Attention(heads, dim, dim, context),
    ).reading("q_proj", "k_proj", "v_proj", **{module: "q_proj"})


class Qwen3VisionConfig(PatchTower):
    """The tower of Qwen3-VL and later."""

    depth: Count = 27
    intermediate_size: Size = 4304
    out_hidden_size: Size = 3584
    num_position_embeddings: Size = 2304
    patch_size: Size | Sides = 16


def qwen3_tower(c: Qwen3VisionConfig, merger: Module | None = None, **parts: Node) -> Module:
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
        merger=merger or patch_merger(c, c.hidden_size, c.out_hidden_size),
        **parts,
    ).on(PATCHES)
