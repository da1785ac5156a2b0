"""MOSS Transcribe Diarize: Whisper's encoder over chunks of audio, whose frames are merged into tokens of
a Qwen3."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from flopcalc.architectures.blocks import Nested, multimodal_lm, part
from flopcalc.architectures.towers import WhisperEncoder, whisper_encoder
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.tree import LayerNorm, Linear, Module, Stream


class MossAudioConfig(WhisperEncoder):
    num_mel_bins: Size = 80
    num_hidden_layers: Count = aliases("encoder_layers", "num_hidden_layers", default=24)
    num_attention_heads: Size = aliases("encoder_attention_heads", "num_attention_heads", default=16)
    intermediate_size: Size = aliases("encoder_ffn_dim", "intermediate_size", default=4096)
    hidden_size: Size = aliases("d_model", "hidden_size", default=1024)


class MossTranscribeDiarizeConfig(Nested):
    part_defaults: ClassVar = {
        "text_config": {
            "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
            "num_attention_heads": 16, "num_key_value_heads": 8,
        },
    }  # fmt: skip

    audio_config: MossAudioConfig = Field(default_factory=MossAudioConfig)
    tie_word_embeddings: bool = True
    projector_bias: bool = True
    audio_merge_size: Size = 4


@register("moss_transcribe_diarize", MossTranscribeDiarizeConfig)
def moss_transcribe_diarize(c: MossTranscribeDiarizeConfig) -> Module:
    hidden, merge, bias = c.text_config.hidden_size, c.audio_merge_size, c.projector_bias
    projector = Module(
        linear_1=Linear(c.audio_config.hidden_size * merge, hidden, bias),
        linear_2=Linear(hidden, hidden, bias),
        norm=LayerNorm(hidden),
    ).on(Stream("audio", every=2 * merge, pad=1))
    return multimodal_lm(
        c, part(c.text_config), audio_tower=whisper_encoder(c.audio_config), multi_modal_projector=projector
    )
