"""Gemma 3n: four residual streams of which one passes through a layer and corrects the others (AltUp), a
low-rank residual beside attention, an embedding of its own for every layer, and keys and values that later
layers reuse. The whole model sees through MobileNet-V5 and hears through a conformer."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from flopcalc.architectures.blocks import Multimodal, each, lm_head, mlp
from flopcalc.architectures.gemma2 import Gemma, sandwich_layer
from flopcalc.architectures.gemma3n_audio import Gemma3nAudioConfig, audio_tower
from flopcalc.architectures.gemma4 import Layer, reusing_attention
from flopcalc.architectures.mobilenetv5 import SOFT_TOKENS, mobilenetv5_300m_enc
from flopcalc.architectures.towers import alone
from flopcalc.config import Count, Repeats, Schema, Size, legacy
from flopcalc.estimators import register
from flopcalc.tree import Embedding, Layers, Linear, Module, Norm, Stream, StreamMix, Weight


class Gemma3nTextConfig(Gemma):
    vocab_size: Size = 262_400
    hidden_size: Size = 2048
    intermediate_size: Size | list[Size] = 16_384  # type: ignore[assignment]  # one for all layers, or each its own
    num_hidden_layers: Count = 35
    num_key_value_heads: Size = 2
    sliding_window: Size = 512
    vocab_size_per_layer_input: Size = 262_144
    hidden_size_per_layer_input: Size = 256
    altup_num_inputs: Repeats = 4
    num_kv_shared_layers: Count = 15
    laurel_rank: Size = 64
    use_bidirectional_attention: bool | None = legacy()

    def default_layer_types(self) -> list[str]:
        layers = range(1, self.num_hidden_layers + 1)
        return ["sliding_attention" if i % 5 else "full_attention" for i in layers]

    def derive(self) -> None:
        super().derive()
        layers, shared = self.num_hidden_layers, self.num_kv_shared_layers
        if not isinstance(self.intermediate_size, list):
            self.intermediate_size = [self.intermediate_size] * layers
        if len(self.intermediate_size) != layers:
            raise ValueError(f"intermediate_size: found {len(self.intermediate_size)} widths, expected {layers}")
        if shared and set(self.layer_types[: max(layers - shared, 0)]) != set(self.layer_types):
            raise ValueError(f"num_kv_shared_layers: found {shared}, which leaves a layer type without keys to reuse")

    def layers(self) -> list[tuple[Layer, int]]:
        """Each layer and the width of its MLP."""
        first_reuse = self.num_hidden_layers - self.num_kv_shared_layers
        return [
            (Layer(kind, self.head_dim, self.num_key_value_heads, i >= first_reuse), width)
            for i, (kind, width) in enumerate(zip(self.layer_types, self.intermediate_size, strict=True))  # type: ignore[arg-type]
        ]


TWICE = Stream("text", rows=2)
"""Once when the streams are predicted, once when they are corrected."""


def altup(hidden: int, streams: int) -> Module:
    return Module(
        router_norm=alone(Norm(hidden), TWICE),
        modality_router=alone(Linear(hidden, streams, kind="stream_map"), TWICE),
        prediction_coefs=Linear(streams, streams**2, kind="stream_map"),
        mix=StreamMix(streams, hidden),
        correction_coefs=Linear(streams, streams, kind="stream_map"),
        correct_output_scale=Weight((hidden,)),
    )


def body(c: Gemma3nTextConfig) -> Module:
    hidden, own, streams = c.hidden_size, c.hidden_size_per_layer_input, c.altup_num_inputs
    laurel = Module(
        linear_left=Linear(hidden, c.laurel_rank),
        linear_right=Linear(c.laurel_rank, hidden),
        post_laurel_norm=Norm(hidden),
    )
    before = {"altup": altup(hidden, streams), "input_layernorm": Norm(hidden), "laurel": laurel}

    def layer(kind: tuple[Layer, int]) -> Module:
        at, width = kind
        inner = sandwich_layer(hidden, reusing_attention(c, at, c.span(at.kind)), mlp(hidden, width))
        return (
            inner.replacing(input_layernorm=before)
            .reading(self_attn="input_layernorm")
            .holding(
                per_layer_input_gate=Linear(hidden, own),
                per_layer_projection=Linear(own, hidden),
                post_per_layer_input_norm=Norm(hidden),
            )
        )

    return Module(
        embed_tokens=Embedding(c.vocab_size, hidden),
        embed_tokens_per_layer=Embedding(c.vocab_size_per_layer_input, c.num_hidden_layers * own, kind="lookup"),
        per_layer_model_projection=Linear(hidden, c.num_hidden_layers * own),
        per_layer_projection_norm=Norm(own, vectors=c.num_hidden_layers),
        altup_projections=Layers([Linear(hidden, hidden)] * (streams - 1)).reading(*map(str, range(streams - 1))),
        layers=each(layer, c.layers()),
        altup_unembed_projections=Layers([Linear(hidden, hidden)] * (streams - 1)).reading(
            *map(str, range(streams - 1))
        ),
        norm=Norm(hidden, "final_norm"),
    )


@register("gemma3n_text", Gemma3nTextConfig)
def gemma3n_text(c: Gemma3nTextConfig) -> Module:
    tied_to = "model.embed_tokens.weight" if c.tie_word_embeddings else None
    return Module(model=body(c), lm_head=lm_head(c, tied_to))


class Gemma3nVisionConfig(Schema):
    architecture: str = "mobilenetv5_300m_enc"
    model_args: dict[str, Any] | None = None
    hidden_size: Size = 2048
    vocab_size: Size = 128

    def derive(self) -> None:
        known, alone = mobilenetv5_300m_enc.__name__, "Without images, count the text_config by itself"
        if self.architecture != known:
            raise ValueError(
                f"architecture: found {self.architecture!r}, expected {known!r}: no config says how other towers of "
                f"timm are built. {alone}"
            )
        if self.model_args:
            raise ValueError(
                f"model_args: found {self.model_args!r}, expected none: they would change timm's {known}. {alone}"
            )


class Gemma3nConfig(Multimodal):
    tie_word_embeddings: bool | None = True
    text_config: Gemma3nTextConfig = Field(default_factory=Gemma3nTextConfig)
    vision_config: Gemma3nVisionConfig = Field(default_factory=Gemma3nVisionConfig)
    audio_config: Gemma3nAudioConfig = Field(default_factory=Gemma3nAudioConfig)


def embedder(name: str, vocab_size: int, width: int, out: int, soft: Stream) -> Module:
    """The projection of what a tower makes. All tokens of the text pass through it as well, as if each were one
    that stands for an image or an audio; those that are then take the place of their embeddings."""
    projection = Linear(width, out)
    again = Module(**{"": projection}).sharing(f"model.{name}.embedding_projection")
    return Module(
        embedding=Embedding(vocab_size, width, kind="lookup"),
        hard_embedding_norm=Norm(width),
        embedding_projection=projection,
        **{"": Module(soft_embedding_norm=Norm(width), embedding_projection_of_soft_tokens=again).on(soft)},
    )


@register("gemma3n", Gemma3nConfig)
def gemma3n(c: Gemma3nConfig) -> Module:
    """Images are in patches of 16 x 16 pixels (see `mobilenetv5.py`), audios in frames."""
    vision, audio, out = c.vision_config, c.audio_config, c.text_config.hidden_size
    model = Module(
        vision_tower=Module(timm_model=mobilenetv5_300m_enc()),
        audio_tower=audio_tower(audio),
        embed_vision=embedder("embed_vision", vision.vocab_size, vision.hidden_size, out, SOFT_TOKENS),
        embed_audio=embedder("embed_audio", audio.vocab_size, audio.hidden_size, out, audio.soft_tokens),
        language_model=body(c.text_config),
    ).reading("audio_tower", "embed_vision", "embed_audio")
    tied_to = "model.language_model.embed_tokens.weight" if c.tie_word_embeddings else None
    return Module(model=model, lm_head=lm_head(c.text_config, tied_to))
