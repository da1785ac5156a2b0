"""Qwen3-Omni's thinker: Qwen3-MoE behind Qwen3-VL's tower and an audio encoder of three 2-d convolutions."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from flopcalc.architectures.blocks import Multimodal, backbone, causal_lm, multimodal_lm
from flopcalc.architectures.qwen2_5_omni import AudioEncoder, audio_layers, of_thinker
from flopcalc.architectures.qwen3 import Qwen3MoeConfig, qwen3_moe_layers
from flopcalc.architectures.qwen3_vl import DeepstackVisionConfig
from flopcalc.architectures.towers import alone, qwen3_tower, two_layer_merger
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.tree import Conv, LayerNorm, Layers, Linear, Module, Stream


class OmniMoeTextConfig(Qwen3MoeConfig):
    vocab_size: Size = 3584
    intermediate_size: Size = 18944
    num_hidden_layers: Count = 28
    num_attention_heads: Size = 28
    num_experts: Count = aliases("num_experts", "num_local_experts", default=128)
    use_sliding_window: bool = legacy(False)
    sliding_window: Count | None = legacy()

    def derive(self) -> None:
        self.use_sliding_window = False  # the model knows full attention alone
        super().derive()


class MoeAudioEncoder(AudioEncoder):
    n_window: Size = 50
    n_window_infer: Size = 800
    downsample_hidden_size: Size = 480


class MoeThinkerConfig(Multimodal):
    text_config: OmniMoeTextConfig = Field(default_factory=OmniMoeTextConfig)
    vision_config: DeepstackVisionConfig = Field(default_factory=DeepstackVisionConfig)
    audio_config: MoeAudioEncoder = Field(default_factory=MoeAudioEncoder)


class OmniMoeConfig(MoeThinkerConfig):
    """The whole model, counted as its thinker: talker and vocoder are not trained with it."""

    @model_validator(mode="before")
    @classmethod
    def _read_thinker(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return of_thinker(fields)


def audio_tower(c: MoeAudioEncoder) -> Module:
    """The encoder. Each convolution halves frames and frequencies, rounded up; the frequencies that
    are left then become one vector."""
    width, channels, chunk = c.d_model, c.downsample_hidden_size, 2 * c.n_window
    bins = [-(-c.num_mel_bins // every) for every in (2, 4, 8)]
    convolved = [
        Stream("audio", every=every, pad=every - 1, chunk=chunk, rows=rows)
        for every, rows in zip((2, 4, 8), bins, strict=True)
    ]
    tokens = Stream("audio", every=8, pad=7, chunk=chunk)
    window = tokens.tokens(chunk) * (c.n_window_infer // chunk)
    return Module(
        conv2d1=alone(Conv(1, channels, (3, 3), True), convolved[0]),
        conv2d2=alone(Conv(channels, channels, (3, 3), True), convolved[1]),
        conv2d3=alone(Conv(channels, channels, (3, 3), True), convolved[2]),
        conv_out=Linear(channels * bins[2], width),
        layers=audio_layers(c, window, key_bias=True),
        ln_post=LayerNorm(width),
        proj1=Linear(width, width, True),
        proj2=Linear(width, c.output_dim, True),
    ).on(tokens)


def visual(c: DeepstackVisionConfig) -> Module:
    """Qwen3-VL's tower with mergers of other names."""
    width, out = c.hidden_size, c.out_hidden_size
    deepstack = two_layer_merger(c, LayerNorm(width * c.spatial_merge_size**2), width, out, norm_after=True)
    return qwen3_tower(
        c,
        merger=two_layer_merger(c, LayerNorm(width), width, out),
        merger_list=Layers([deepstack] * len(c.deepstack_visual_indexes)),
    )


@register("qwen3_omni_moe_text", OmniMoeTextConfig)
def qwen3_omni_moe_text(c: OmniMoeTextConfig) -> Module:
    return causal_lm(c, qwen3_moe_layers(c))


@register("qwen3_omni_moe", OmniMoeConfig)
@register("qwen3_omni_moe_thinker", MoeThinkerConfig)
def qwen3_omni_moe_thinker(c: MoeThinkerConfig) -> Module:
    return multimodal_lm(
        c,
        backbone(c.text_config, qwen3_moe_layers(c.text_config)),
        audio_tower=audio_tower(c.audio_config),
        visual=visual(c.vision_config),
    )
