"""The towers of dots3 note: a vision tower whose last layers have more and more experts, and an audio encoder
of three 2-d convolutions."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import model_validator

from flopcalc.architectures.blocks import (
    check_multiple,
    check_top_k,
    check_types,
    decoder_layer,
    each,
    fused_mlp,
    mlp,
    moe,
)
from flopcalc.architectures.towers import PATCHES, alone, split_attention, two_layer_merger
from flopcalc.config import Count, Schema, Size, aliases, legacy
from flopcalc.spans import Bidirectional
from flopcalc.tree import Attention, Conv, LayerNorm, Layers, Linear, Module, Norm, Stream


def with_overrides(fields: Any) -> Any:
    """A config's fields, with what its layers differ in where a file has it, not a live object."""
    spec = fields.get("_heterogeneity_spec") if isinstance(fields, dict) else None
    return fields if spec is None else {**fields, "per_layer_config": getattr(spec, "per_layer_overrides", spec)}


def by_number(overrides: dict[Any, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What single layers differ in, by their numbers, which a file spells as strings."""
    wrong = [i for i in overrides if not str(i).isdecimal()]
    if wrong:
        raise ValueError(f"per_layer_config: found {wrong[0]!r}, expected the number of a layer")
    return {int(i): fields for i, fields in overrides.items()}


class MlpSizes(NamedTuple):
    """What the MLPs of a tower's layers may differ in."""

    intermediate_size: int
    moe_intermediate_size: int
    num_local_experts: int
    num_experts_per_tok: int


PYRAMID = [*[-1] * 25, *range(4, 65, 4), 64]
"""Experts of the vision tower's layers where a config does not say them; -1 for none."""


OF_WHISPER = {
    "d_model": "hidden_size",
    "encoder_attention_heads": "num_attention_heads",
    "encoder_layers": "num_hidden_layers",
    "encoder_ffn_dim": "intermediate_size",
    "num_mel_bins": "feature_size",
}
"""Fields of the audio encoder as published files spell them."""


class Dots3NoteVisionConfig(Schema):
    hidden_size: Size = aliases("embed_dim", "hidden_size", default=1536)
    intermediate_size: Size = 4224
    moe_intermediate_size: Size = 2112
    num_hidden_layers: Count = 42
    num_attention_heads: Size = aliases("num_heads", "num_attention_heads", default=24)
    num_channels: Size = 3
    patch_size: Size = 14
    spatial_merge_size: Size = 2
    attention_bias: bool = aliases("use_bias", "attention_bias", default=False)
    mlp_bias: bool = False
    mlp_layer_types: list[str] | None = None
    num_local_experts: Size = 64
    num_experts_per_tok: Size | None = None
    capacity_factor: Size = legacy(2)
    pyramid_num_routed: list[int] | None = legacy()
    per_layer_config: dict[Any, dict[str, Any]] | None = legacy()
    adapter_in_dim: Size = 1536
    adapter_out_dim: Size = 5120
    adapter_merge_size: Size = 2

    @model_validator(mode="before")
    @classmethod
    def _read_overrides(cls, fields: Any) -> Any:
        return with_overrides(fields)

    def derive(self) -> None:
        counts, layers = self.pyramid_num_routed, self.num_hidden_layers
        if counts is None and self.mlp_layer_types is None:
            counts = PYRAMID
        if self.num_experts_per_tok is None:
            self.num_experts_per_tok = self.capacity_factor
        if counts is not None:
            self.mlp_layer_types = ["sparse" if count > 0 else "dense" for count in counts]
            if self.per_layer_config is None:
                self.per_layer_config = {
                    i: {"num_local_experts": count, "num_experts_per_tok": min(self.num_experts_per_tok, count)}
                    for i, count in enumerate(counts)
                    if count > 0
                }
        check_types("mlp_layer_types", self.mlp_layer_types, layers, ("dense", "sparse"))
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        if self.adapter_in_dim != self.hidden_size:
            raise ValueError(f"adapter_in_dim: found {self.adapter_in_dim}, expected hidden_size = {self.hidden_size}")
        if self.adapter_merge_size != self.spatial_merge_size:
            raise ValueError(f"adapter_merge_size: found {self.adapter_merge_size}, expected spatial_merge_size")
        if self.mlp_bias and "sparse" in self.mlp_layer_types:
            raise ValueError("mlp_bias: found true, expected false, since experts have no biases")
        for kind, own in self.of_layers():
            if kind == "sparse":
                check_top_k(own.num_experts_per_tok, own.num_local_experts)

    def of_layers(self) -> list[tuple[str, MlpSizes]]:
        """Each layer's type and the sizes of its MLP."""
        given = by_number(self.per_layer_config or {})
        for i, fields in given.items():
            for name, value in fields.items():
                if name not in MlpSizes._fields or type(value) is not int or value < 1:
                    raise ValueError(
                        f"per_layer_config: found {name} = {value!r} of layer {i}, expected one of the sizes "
                        f"{', '.join(MlpSizes._fields)}"
                    )
        whole = MlpSizes(
            self.intermediate_size, self.moe_intermediate_size, self.num_local_experts, self.num_experts_per_tok
        )
        return [(kind, whole._replace(**given.get(i, {}))) for i, kind in enumerate(self.mlp_layer_types)]


class Dots3NoteAudioConfig(Schema):
    hidden_size: Size = 1280
    intermediate_size: Size = 5120
    num_hidden_layers: Count = 32
    num_attention_heads: Size = 20
    attention_bias: bool = True
    feature_size: Size = 128
    downsample_hidden_size: Size = 480
    adapter_input_size: Size = aliases("whisper_adapter_in_dim", "adapter_input_size", default=1280)
    adapter_out_dim: Size = aliases("whisper_adapter_out_dim", "adapter_output_size", "adapter_out_dim", default=5120)

    @model_validator(mode="before")
    @classmethod
    def _read_whisper(cls, fields: Any) -> Any:
        whisper = fields.get("whisper_config") if isinstance(fields, dict) else None
        if not isinstance(whisper, dict):
            return fields
        return {**fields, **{name: whisper[old] for old, name in OF_WHISPER.items() if old in whisper}}

    def derive(self) -> None:
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        if self.adapter_input_size != self.hidden_size:
            raise ValueError(
                f"adapter_input_size: found {self.adapter_input_size}, expected hidden_size = {self.hidden_size}"
            )


def vision_tower(c: Dots3NoteVisionConfig) -> Module:
    width, dim = c.hidden_size, c.hidden_size // c.num_attention_heads
    attn = Module(
        qkv=Linear(width, 3 * width, c.attention_bias),
        q_norm=Norm(dim, "head_norm", c.num_attention_heads),
        k_norm=Norm(dim, "head_norm", c.num_attention_heads),
        core=Attention(c.num_attention_heads, dim, dim, Bidirectional()),
        proj=Linear(width, width, c.attention_bias),
    ).reading(q_norm="qkv", k_norm="qkv")

    def block(kind: tuple[str, MlpSizes]) -> Module:
        mlp_type, own = kind
        if mlp_type == "dense":
            inner = mlp(width, own.intermediate_size, bias=c.mlp_bias)
        else:
            inner = moe(width, own.moe_intermediate_size, own.num_local_experts, own.num_experts_per_tok)
        return Module(norm1=Norm(width), attn=attn, norm2=Norm(width), mlp=inner)

    return Module(
        patch_embed=Module(
            proj=Conv(c.num_channels, width, (c.patch_size, c.patch_size), True, "patch_embedding"), norm=Norm(width)
        ),
        blocks=each(block, c.of_layers()),
        norm=Norm(width),
        merger=two_layer_merger(c, LayerNorm(width), width, c.adapter_out_dim),
    ).on(PATCHES)


def audio_tower(c: Dots3NoteAudioConfig) -> Module:
    """The encoder. Each convolution halves frames and frequencies, rounded up; the frequencies that are
    left then become one vector."""
    width, channels, out = c.hidden_size, c.downsample_hidden_size, c.adapter_out_dim
    convs = Layers(
        alone(
            Conv(read, channels, (3, 3), True),
            Stream("audio", every=every, pad=every - 1, rows=-(-c.feature_size // every)),
        )
        for read, every in ((1, 2), (channels, 4), (channels, 8))
    )
    self_attn = split_attention(
        width, c.num_attention_heads, Bidirectional(), bias=c.attention_bias, key_bias=False, out="o_proj"
    )
    layer = decoder_layer(width, self_attn=self_attn, mlp=fused_mlp(width, c.intermediate_size, bias=True))
    return Module(
        conv_stem=Module(convs=convs, conv_out=Linear(channels * -(-c.feature_size // 8), width)),
        layers=Layers([layer] * c.num_hidden_layers),
        layer_norm=Norm(width),
        adapter=Module(norm=LayerNorm(width), fc1=Linear(width, out, True), fc2=Linear(out, out, True)),
    ).on(Stream("audio", every=8, pad=7))
