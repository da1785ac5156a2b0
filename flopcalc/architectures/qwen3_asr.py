"""Qwen3-ASR: a Qwen3 behind the audio encoder of Qwen3-Omni. Files of the first release nest it all in a
thinker, under other names."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from flopcalc.architectures.blocks import Nested, multimodal_lm, part
from flopcalc.architectures.qwen3_omni_moe import MoeAudioEncoder, audio_tokens, audio_tower
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module


class Qwen3ASREncoderConfig(MoeAudioEncoder):
    encoder_layers: Count = aliases("encoder_layers", "num_hidden_layers", default=24)
    encoder_attention_heads: Size = aliases("encoder_attention_heads", "num_attention_heads", default=16)
    encoder_ffn_dim: Size = aliases("encoder_ffn_dim", "intermediate_size", default=4096)
    d_model: Size = aliases("d_model", "hidden_size", default=1024)


class Qwen3ASRConfig(Nested):
    part_defaults: ClassVar = {
        "text_config": {
            "model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
            "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        },
    }  # fmt: skip

    audio_config: Qwen3ASREncoderConfig = Field(default_factory=Qwen3ASREncoderConfig)
    tie_word_embeddings: bool = True

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, fields: Any) -> Any:
        return cls.renamed(fields) if isinstance(fields, dict) else fields

    @classmethod
    def renamed(cls, fields: dict[str, Any]) -> dict[str, Any]:
        thinker = fields.get("thinker_config")
        if not isinstance(thinker, dict):
            return fields
        text, audio = (thinker.get(name) for name in ("text_config", "audio_config"))
        if not isinstance(text, dict) or not isinstance(audio, dict):
            found, name = (audio, "audio") if isinstance(text, dict) else (text, "text")
            raise ValueError(f"thinker_config.{name}_config: found {found!r}, expected an object")
        return {
            "text_config": {**text, "model_type": "qwen3"},
            "audio_config": {**audio, "model_type": "qwen3_asr_encoder"},
            "tie_word_embeddings": text.get("tie_word_embeddings", True),
        }


@register("qwen3_asr", Qwen3ASRConfig)
def qwen3_asr(c: Qwen3ASRConfig) -> Module:
    audio, width = c.audio_config, c.audio_config.d_model
    projector = Module(linear_1=Linear(width, width, True), linear_2=Linear(width, audio.output_dim, True))
    return multimodal_lm(
        c,
        part(c.text_config),
        audio_tower=audio_tower(audio),
        multi_modal_projector=projector.on(audio_tokens(audio)),
    )
