"""Qwen2-Audio: a Qwen2 behind Whisper's encoder, whose tokens are pooled by two."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from flopcalc.architectures.blocks import Nested, multimodal_lm, part
from flopcalc.architectures.towers import WhisperEncoder, whisper_encoder
from flopcalc.config import legacy
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module, Stream

POOLED = Stream("audio", every=4, pad=1)


class Qwen2AudioConfig(Nested):
    part_defaults: ClassVar = {"text_config": {"model_type": "qwen2"}}

    tie_word_embeddings: bool = legacy(False)
    """Read, yet the class never ties."""
    audio_config: WhisperEncoder = Field(default_factory=WhisperEncoder)


@register("qwen2_audio", Qwen2AudioConfig)
def qwen2_audio(c: Qwen2AudioConfig) -> Module:
    projector = Module(linear=Linear(c.audio_config.hidden_size, c.text_config.hidden_size, True))
    return multimodal_lm(
        c.model_copy(update={"tie_word_embeddings": False}),
        part(c.text_config),
        audio_tower=whisper_encoder(c.audio_config, pooled=POOLED),
        multi_modal_projector=projector.on(POOLED),
    )
