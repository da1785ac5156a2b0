"""Voxtral: any language model behind Whisper's encoder, whose tokens are laid side by side for a projector.
An audio is filled up to whole chunks, silence being tokens of the text too."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from flopcalc.architectures.blocks import Nested, multimodal_lm, part
from flopcalc.architectures.towers import WhisperEncoder, whisper_encoder
from flopcalc.config import legacy
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module, Stream

MINI = {
    "model_type": "llama",
    "vocab_size": 131072,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 30,
    "num_key_value_heads": 8,
    "head_dim": 128,
}


class VoxtralConfig(Nested):
    part_defaults: ClassVar = {"text_config": MINI}

    tie_word_embeddings: bool = legacy(False)
    """Read, yet the class never ties."""
    audio_config: WhisperEncoder = Field(default_factory=WhisperEncoder)

    @model_validator(mode="before")
    @classmethod
    def _complete_text(cls, fields: Any) -> Any:
        """Fields that the text_config lacks are those of Voxtral Mini."""
        if not isinstance(fields, dict) or not isinstance(fields.get("text_config"), dict):
            return fields
        return {**fields, "text_config": {**MINI, **fields["text_config"]}}

    def derive(self) -> None:
        super().derive()
        audio = self.audio_config
        numbers = audio.max_source_positions * audio.hidden_size
        if numbers % audio.intermediate_size:
            raise ValueError(
                f"audio_config.intermediate_size: found {audio.intermediate_size}, which the projector reads, expected "
                f"a divisor of max_source_positions * hidden_size = {numbers}"
            )


@register("voxtral", VoxtralConfig)
def voxtral(c: VoxtralConfig) -> Module:
    audio, hidden = c.audio_config, c.text_config.hidden_size
    frames = 2 * audio.max_source_positions
    tokens = audio.max_source_positions * audio.hidden_size // audio.intermediate_size
    projector = Module(linear_1=Linear(audio.intermediate_size, hidden), linear_2=Linear(hidden, hidden))
    return multimodal_lm(
        c.model_copy(update={"tie_word_embeddings": False}),
        part(c.text_config),
        audio_tower=whisper_encoder(audio, filled=True),
        multi_modal_projector=projector.on(Stream("audio", every=frames, pad=frames - 1, rows=tokens)),
    )
