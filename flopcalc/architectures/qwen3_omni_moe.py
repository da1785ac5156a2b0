"""Qwen3-Omni's thinker: Qwen3-MoE behind Qwen3-VL's tower and an audio encoder of three 2-d convolutions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field, model_validator

from flopcalc.architectures.blocks import Multimodal, backbone, causal_lm, multimodal_lm
from flopcalc.architectures.qwen2_5_omni import AudioEncoder, audio_layers, of_thinker
from flopcalc.architectures.qwen3 import Qwen3MoeConfig, qwen3_moe_layers
from flopcalc.architectures.qwen3_vl import DeepstackVisionConfig
from flopcalc.architectures.towers import alone, qwen3_tower, two_layer_merger
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.tree import Conv, LayerNorm, Layers, Linear, Module, Node, Stream


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

    def derive(self) -> None:
        super().derive()
        if self.n_window_infer < 2 * self.n_window:
            raise ValueError(
                f"n_window_infer: found {self.n_window_infer}, expected at least a chunk of 2 * n_window = "
                f"{2 * self.n_window} frames"
            )


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


def audio_tokens(c: MoeAudioEncoder) -> Stream:
    """What each convolution having halved the frames of a chunk, rounded up, leaves of them."""
    return Stream("audio", every=8, pad=7, chunk=2 * c.n_window)


def audio_tower(c: MoeAudioEncoder, **behind: Node) -> Module:
    """The encoder. Each convolution halves frames and frequencies, rounded up; the frequencies that
    are left then become one vector. What comes `behind` the layers as keywords."""
    width, channels, tokens = c.d_model, c.downsample_hidden_size, audio_tokens(c)
    bins = [-(-c.num_mel_bins // every) for every in (2, 4, 8)]
    convolved = [
        replace(tokens, every=every, pad=every - 1, rows=rows) for every, rows in zip((2, 4, 8), bins, strict=True)
    ]
    window = tokens.tokens(2 * c.n_window) * (c.n_window_infer // (2 * c.n_window))
    return Module(
        conv2d1=alone(Conv(1, channels, (3, 3), True), convolved[0]),
        conv2d2=alone(Conv(channels, channels, (3, 3), True), convolved[1]),
        conv2d3=alone(Conv(channels, channels, (3, 3), True), convolved[2]),
        conv_out=Linear(channels * bins[2], width),
        layers=audio_layers(c, window, key_bias=True),
        ln_post=LayerNorm(width),
        **behind,
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
    audio, width = c.audio_config, c.audio_config.d_model
    projector = {"proj1": Linear(width, width, True), "proj2": Linear(width, audio.output_dim, True)}
    return multimodal_lm(
        c,
        backbone(c.text_config, qwen3_moe_layers(c.text_config)),
        audio_tower=audio_tower(audio, **projector),
        visual=visual(c.vision_config),
    )
