"""MOSS Transcribe Diarize: Whisper's encoder over chunks of audio, whose frames are merged into tokens of
a Qwen3."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from flopcalc.architectures.blocks import Nested, multimodal_lm, part
from flopcalc.architectures.towers import alone, split_attention
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register, register_part
from flopcalc.spans import BidirectionalChunk
from flopcalc.tree import Conv, Embedding, LayerNorm, Layers, Linear, Module, Stream

AUDIO = Stream("audio", every=2, pad=1)


class MossAudioConfig(Schema):
    num_mel_bins: Size = 80
    num_hidden_layers: Count = aliases("encoder_layers", "num_hidden_layers", default=24)
    num_attention_heads: Size = aliases("encoder_attention_heads", "num_attention_heads", default=16)
    intermediate_size: Size = aliases("encoder_ffn_dim", "intermediate_size", default=4096)
    hidden_size: Size = aliases("d_model", "hidden_size", default=1024)
    max_source_positions: Size = 1500


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


@register_part("moss_transcribe_diarize_audio", MossAudioConfig)
def moss_audio(c: MossAudioConfig) -> Module:
    """Its second convolution halves the frames; each chunk has as many tokens as there are positions."""
    width = c.hidden_size
    span = BidirectionalChunk(c.max_source_positions)
    layer = Module(
        self_attn_layer_norm=LayerNorm(width),
        self_attn=split_attention(width, c.num_attention_heads, span, key_bias=False),
        final_layer_norm=LayerNorm(width),
        fc1=Linear(width, c.intermediate_size, True),
        fc2=Linear(c.intermediate_size, width, True),
    )
    return Module(
        conv1=alone(Conv(c.num_mel_bins, width, (3,), True), Stream("audio")),
        conv2=Conv(width, width, (3,), True),
        embed_positions=Embedding(c.max_source_positions, width, kind="lookup"),
        layers=Layers([layer] * c.num_hidden_layers),
        layer_norm=LayerNorm(width),
    ).on(AUDIO)


@register("moss_transcribe_diarize", MossTranscribeDiarizeConfig)
def moss_transcribe_diarize(c: MossTranscribeDiarizeConfig) -> Module:
    hidden, merge, bias = c.text_config.hidden_size, c.audio_merge_size, c.projector_bias
    projector = Module(
        linear_1=Linear(c.audio_config.hidden_size * merge, hidden, bias),
        linear_2=Linear(hidden, hidden, bias),
        norm=LayerNorm(hidden),
    ).on(Stream("audio", every=2 * merge, pad=1))
    return multimodal_lm(
        c, part(c.text_config), audio_tower=moss_audio(c.audio_config), multi_modal_projector=projector
    )
