"""Qwen2.5-Omni's thinker: Qwen2 behind Qwen2.5-VL's tower and an audio encoder that attends in chunks."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from flopcalc.architectures.blocks import Multimodal, backbone, causal_lm, multimodal_lm
from flopcalc.architectures.qwen2 import Qwen2Config, qwen2_layers
from flopcalc.architectures.qwen2_5_vl import Qwen2_5VisionConfig, windowed_tower
from flopcalc.architectures.towers import HALVED, alone, audio_layer
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.tree import Conv, Embedding, LayerNorm, Layers, Linear, Module, Stream


class OmniTextConfig(Qwen2Config):
    vocab_size: Size = 152064
    hidden_size: Size = 3584
    intermediate_size: Size = 18944
    num_hidden_layers: Count = 28
    num_attention_heads: Size = 28
    num_key_value_heads: Size | None = 4
    sliding_window: Count | None = 32768
    tie_word_embeddings: bool = True


class AudioEncoder(Schema):
    """Fields of Qwen-Omni's audio encoders. Chunks of 2 * n_window frames are convolved by themselves."""

    num_mel_bins: Size = 128
    encoder_layers: Count = aliases("encoder_layers", "num_hidden_layers", default=32)
    encoder_attention_heads: Size = aliases("encoder_attention_heads", "num_attention_heads", default=20)
    encoder_ffn_dim: Size = aliases("encoder_ffn_dim", "intermediate_size", default=5120)
    d_model: Size = aliases("d_model", "hidden_size", default=1280)
    n_window: Size = 100
    output_dim: Size = 3584


class ThinkerConfig(Multimodal):
    text_config: OmniTextConfig = Field(default_factory=OmniTextConfig)
    vision_config: Qwen2_5VisionConfig = Field(default_factory=Qwen2_5VisionConfig)
    audio_config: AudioEncoder = Field(default_factory=AudioEncoder)


def of_thinker(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of the thinker out of a whole omni model's."""
    return fields.get("thinker_config") or {}


class OmniConfig(ThinkerConfig):
    """The whole model, counted as its thinker: talker and vocoder are not trained with it."""

    @model_validator(mode="before")
    @classmethod
    def _read_thinker(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return of_thinker(fields)


def audio_layers(c: AudioEncoder, window: int, *, key_bias: bool) -> Layers:
    """The layers of an audio encoder, which attend within chunks of `window` tokens."""
    layer = audio_layer(c.d_model, c.encoder_attention_heads, c.encoder_ffn_dim, window, key_bias=key_bias)
    return Layers([layer] * c.encoder_layers)


def audio_tower(c: AudioEncoder) -> Module:
    """The encoder: its second convolution halves the frames, pooling the tokens behind the layers again."""
    width = c.d_model
    return Module(
        conv1=alone(Conv(c.num_mel_bins, width, (3,), True), Stream("audio")),
        conv2=Conv(width, width, (3,), True),
        audio_bos_eos_token=Embedding(2, c.output_dim, kind="lookup"),
        layers=audio_layers(c, c.n_window, key_bias=False),
        **{"": Module(ln_post=LayerNorm(width), proj=Linear(width, c.output_dim, True)).on(Stream("audio", 4, pad=1))},
    ).on(HALVED)


@register("qwen2_5_omni_text", OmniTextConfig)
def qwen2_5_omni_text(c: OmniTextConfig) -> Module:
    return causal_lm(c, qwen2_layers(c))


@register("qwen2_5_omni", OmniConfig)
@register("qwen2_5_omni_thinker", ThinkerConfig)
def qwen2_5_omni_thinker(c: ThinkerConfig) -> Module:
    return multimodal_lm(
        c,
        backbone(c.text_config, qwen2_layers(c.text_config)),
        audio_tower=audio_tower(c.audio_config),
        visual=windowed_tower(c.vision_config, split=True),
    )
