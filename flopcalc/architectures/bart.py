"""BART and its kin as language models: the decoder alone. Its cross-attention has parameters and waits
for an encoder."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple, fc_layer
from flopcalc.architectures.towers import split_attention
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Embedding, LayerNorm, Layers, Linear, Module


class SecondDecoder(Schema):
    """Fields of the decoder of an encoder-decoder."""

    vocab_size: Size = 50265
    d_model: Size = aliases("hidden_size", "d_model", default=1024)
    decoder_layers: Count = 12
    decoder_ffn_dim: Size = 4096
    decoder_attention_heads: Size = 16
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("d_model", self.d_model, "decoder_attention_heads", self.decoder_attention_heads)


class BartConfig(SecondDecoder):
    max_position_embeddings: Size = 1024


def bart_layer(
    c: SecondDecoder,
    *,
    pre_norm: bool,
    bias: bool = True,
    key_bias: bool | None = None,
    encoder_width: int | None = None,
) -> Module:
    """The decoder layer; `bias` is that of the attentions, whose cross-attention reads `encoder_width`."""
    hidden = c.d_model
    attention = split_attention(hidden, c.decoder_attention_heads, Full(), bias=bias, key_bias=key_bias)
    read = Linear(encoder_width or hidden, hidden, bias)
    crossed = (
        attention if encoder_width is None else Module(**{**dict(attention.children), "k_proj": read, "v_proj": read})
    )
    return fc_layer(hidden, c.decoder_ffn_dim, attention, pre_norm=pre_norm, encoder_attn=crossed)


def bart_lm(
    c: SecondDecoder,
    layer: Module,
    positions: int | None,
    *,
    embedding_norm: bool = False,
    final_norm: bool = False,
    head: str = "lm_head",
    vocab_size: int | None = None,
    tied: bool | None = None,
) -> Module:
    """The skeleton: model.decoder and a head of this name; `positions` None has no table of them."""
    hidden, vocab = c.d_model, vocab_size or c.vocab_size
    tied = c.tie_word_embeddings if tied is None else tied
    return Module(
        model=Module(
            decoder=Module(
                embed_tokens=Embedding(vocab, hidden),
                embed_positions=Embedding(positions, hidden, kind="lookup") if positions else None,
                layernorm_embedding=LayerNorm(hidden) if embedding_norm else None,
                layers=Layers([layer] * c.decoder_layers),
                layer_norm=LayerNorm(hidden) if final_norm else None,
            )
        ),
        **{
            head: Linear(
                hidden,
                vocab if tied else c.vocab_size,
                kind="head",
                tied_to="model.decoder.embed_tokens.weight" if tied else None,
            )
        },
    )


class MvpConfig(BartConfig):
    vocab_size: Size = 50267


class PLBartConfig(BartConfig):
    vocab_size: Size = 50005
    d_model: Size = aliases("hidden_size", "d_model", default=768)
    decoder_layers: Count = 6
    decoder_ffn_dim: Size = 3072
    decoder_attention_heads: Size = 12


@register("bart", BartConfig)
@register("mvp", MvpConfig)
@register("plbart", PLBartConfig)
def bart(c: BartConfig) -> Module:
    """Two rows of positions in front are unused."""
    return bart_lm(c, bart_layer(c, pre_norm=False), c.max_position_embeddings + 2, embedding_norm=True)


@register("mbart", BartConfig)
def mbart(c: BartConfig) -> Module:
    positions = c.max_position_embeddings + 2
    return bart_lm(c, bart_layer(c, pre_norm=True), positions, embedding_norm=True, final_norm=True)


class BlenderbotConfig(BartConfig):
    vocab_size: Size = 8008
    max_position_embeddings: Size = 128
    d_model: Size = aliases("hidden_size", "d_model", default=2560)
    decoder_layers: Count = 24
    decoder_ffn_dim: Size = 10240
    decoder_attention_heads: Size = 32


@register("pegasus", BartConfig)
@register("blenderbot", BlenderbotConfig)
def pegasus(c: BartConfig) -> Module:
    return bart_lm(c, bart_layer(c, pre_norm=True), c.max_position_embeddings, final_norm=True)


class BlenderbotSmallConfig(BartConfig):
    max_position_embeddings: Size = 512
    d_model: Size = aliases("hidden_size", "d_model", default=512)
    decoder_layers: Count = 8
    decoder_ffn_dim: Size = 2048


@register("blenderbot-small", BlenderbotSmallConfig)
def blenderbot_small(c: BlenderbotSmallConfig) -> Module:
    return bart_lm(c, bart_layer(c, pre_norm=False), c.max_position_embeddings, embedding_norm=True)


class MarianConfig(BartConfig):
    vocab_size: Size = 58101
    decoder_vocab_size: Count | None = None

    def derive(self) -> None:
        super().derive()
        self.decoder_vocab_size = self.decoder_vocab_size or self.vocab_size


@register("marian", MarianConfig)
def marian(c: MarianConfig) -> Module:
    layer = bart_layer(c, pre_norm=False)
    return bart_lm(c, layer, c.max_position_embeddings, vocab_size=c.decoder_vocab_size)


class BigBirdPegasusConfig(BartConfig):
    vocab_size: Size = 96103
    max_position_embeddings: Size = 4096
    decoder_layers: Count = 16
    use_bias: bool = False


@register("bigbird_pegasus", BigBirdPegasusConfig)
def bigbird_pegasus(c: BigBirdPegasusConfig) -> Module:
    """Only its encoder is sparse; the head is never tied."""
    layer = bart_layer(c, pre_norm=True, bias=c.use_bias)
    return bart_lm(c, layer, c.max_position_embeddings, embedding_norm=True, tied=False)


class TrOCRConfig(BartConfig):
    max_position_embeddings: Size = 512
    decoder_layers: Count = aliases("num_hidden_layers", "decoder_layers", default=12)
    decoder_attention_heads: Size = aliases("num_attention_heads", "decoder_attention_heads", default=16)
    use_learned_position_embeddings: bool = True
    layernorm_embedding: bool = True
    cross_attention_hidden_size: Size | None = None


@register("trocr", TrOCRConfig)
def trocr(c: TrOCRConfig) -> Module:
    """Its cross-attention would read the vision tower, of another width."""
    layer = bart_layer(c, pre_norm=False, encoder_width=c.cross_attention_hidden_size)
    positions = c.max_position_embeddings + 2 if c.use_learned_position_embeddings else None
    return bart_lm(c, layer, positions, embedding_norm=c.layernorm_embedding, head="output_projection")


class WhisperConfig(SecondDecoder):
    vocab_size: Size = 51865
    max_target_positions: Size = 448
    d_model: Size = aliases("hidden_size", "d_model", default=384)
    decoder_layers: Count = 4
    decoder_ffn_dim: Size = 1536
    decoder_attention_heads: Size = 6


@register("whisper", WhisperConfig)
def whisper(c: WhisperConfig) -> Module:
    """The text decoder alone: keys have no bias."""
    layer = bart_layer(c, pre_norm=True, key_bias=False)
    return bart_lm(c, layer, c.max_target_positions, final_norm=True, head="proj_out")
