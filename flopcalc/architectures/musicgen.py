"""MusicGen's decoder, which is its causal LM: each token is a frame of several codes, with an embedding
and a head for each. MusicGen Melody puts what it is conditioned on before the frames and has no
cross-attention; that of MusicGen waits for an encoder."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.blocks import Multimodal, check_multiple, fc_layer
from flopcalc.architectures.towers import split_attention
from flopcalc.config import Count, Repeats, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Embedding, LayerNorm, Layers, Linear, Module


class MusicgenDecoderConfig(Schema):
    vocab_size: Size = 2048
    hidden_size: Size = 1024
    ffn_dim: Size = 4096
    num_hidden_layers: Count = 24
    num_attention_heads: Size = 16
    num_codebooks: Repeats = 4

    def derive(self) -> None:
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)


class MusicgenConfig(Multimodal):
    decoder: MusicgenDecoderConfig = Field(default_factory=MusicgenDecoderConfig)


def musicgen_lm(c: MusicgenDecoderConfig, *, cross_attention: bool) -> Module:
    hidden = c.hidden_size
    attention = split_attention(hidden, c.num_attention_heads, Full(), bias=False)
    crossed = attention if cross_attention else None
    layer = fc_layer(hidden, c.ffn_dim, attention, pre_norm=True, bias=False, encoder_attn=crossed)
    return Module(
        model=Module(
            decoder=Module(
                embed_tokens=Layers([Embedding(c.vocab_size + 1, hidden)] * c.num_codebooks),
                layers=Layers([layer] * c.num_hidden_layers),
                layer_norm=LayerNorm(hidden),
            )
        ),
        lm_heads=Layers([Linear(hidden, c.vocab_size, kind="head")] * c.num_codebooks),
    )


@register("musicgen", MusicgenConfig)
def musicgen(c: MusicgenConfig) -> Module:
    return musicgen_lm(c.decoder, cross_attention=True)


@register("musicgen_melody", MusicgenConfig)
def musicgen_melody(c: MusicgenConfig) -> Module:
    return musicgen_lm(c.decoder, cross_attention=False)
