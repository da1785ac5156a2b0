"""ProphetNet as a language model: beside the main stream of tokens run `ngram` streams, each of which
predicts a later token; they read the main stream and their own token."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple, lm_head, plain_mlp
from flopcalc.config import Count, Repeats, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import Full, Lagged, Sum, Window
from flopcalc.tree import TEXT, Attention, Embedding, LayerNorm, Layers, Linear, Module, Stream


class ProphetNetConfig(Schema):
    vocab_size: Size = 30522
    hidden_size: Size = 1024
    decoder_ffn_dim: Size = 4096
    num_decoder_layers: Count = 12
    num_decoder_attention_heads: Size = 16
    max_position_embeddings: Size = 512
    add_cross_attention: bool = True
    ngram: Repeats = 2
    num_buckets: Size = 32
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("hidden_size", self.hidden_size, "num_decoder_attention_heads", self.num_decoder_attention_heads)


@register("prophetnet", ProphetNetConfig)
def prophetnet(c: ProphetNetConfig) -> Module:
    """The head works on the predicting streams alone."""
    hidden, heads = c.hidden_size, c.num_decoder_attention_heads
    square, norm, dim = Linear(hidden, hidden, bias=True), LayerNorm(hidden), hidden // heads
    projections = {"key_proj": square, "value_proj": square, "query_proj": square}
    streams = [Sum((Lagged(ahead) if ahead else Full(), Window(1))) for ahead in range(c.ngram)]
    cores = Module(
        main=Attention(heads, dim, dim, Full()), predict=Layers(Attention(heads, dim, dim, span) for span in streams)
    )
    layer = Module(
        self_attn=Module(
            **projections,
            relative_pos_embeddings=Linear(hidden, c.num_buckets * heads, bias=True),
            cores=cores.on(TEXT),
            out_proj=square,
        ).reading(*projections, "relative_pos_embeddings"),
        self_attn_layer_norm=norm,
        cross_attn=Module(**projections, out_proj=square).never_run() if c.add_cross_attention else None,
        cross_attn_layer_norm=Module(**{"": norm}).never_run() if c.add_cross_attention else None,
        feed_forward=plain_mlp(hidden, c.decoder_ffn_dim, bias=True, names=("intermediate", "output")),
        feed_forward_layer_norm=norm,
    )
    words = "prophetnet.word_embeddings.weight" if c.tie_word_embeddings else None
    return Module(
        prophetnet=Module(
            word_embeddings=Embedding(c.vocab_size, hidden, kind="lookup"),  # the decoder has its own place for it
            decoder=Module(
                word_embeddings=Embedding(c.vocab_size, hidden, words),
                position_embeddings=Embedding(c.max_position_embeddings, hidden, kind="lookup"),
                ngram_embeddings=Embedding(c.ngram, hidden, kind="lookup"),
                embeddings_layer_norm=norm,
                layers=Layers([layer] * c.num_decoder_layers),
            ).on(Stream(rows=1 + c.ngram)),
        ),
        **{"": Module(lm_head=lm_head(c, words)).on(Stream(rows=c.ngram))},
    )
