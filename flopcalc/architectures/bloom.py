"""BLOOM: query, key and value in one projection, an MLP without gate, a norm behind the embedding."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple, decoder_layer, plain_mlp
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, LayerNorm, Layers, Linear, Module


class BloomConfig(Schema):
    vocab_size: Size = 250880
    hidden_size: Size = aliases("n_embed", "hidden_size", default=64)
    n_layer: Count = aliases("num_hidden_layers", "n_layer", default=2)
    n_head: Size = aliases("num_attention_heads", "n_head", default=8)
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("hidden_size", self.hidden_size, "n_head", self.n_head)


@register("bloom", BloomConfig)
def bloom(c: BloomConfig) -> Module:
    hidden, dim = c.hidden_size, c.hidden_size // c.n_head
    layer = decoder_layer(
        hidden,
        norm=LayerNorm,
        self_attention=Module(
            query_key_value=Linear(hidden, 3 * hidden, bias=True),
            core=Attention(c.n_head, dim, dim, Full()),
            dense=Linear(hidden, hidden, bias=True),
        ),
        mlp=plain_mlp(hidden, 4 * hidden, bias=True, names=("dense_h_to_4h", "dense_4h_to_h")),
    )
    return Module(
        transformer=Module(
            word_embeddings=Embedding(c.vocab_size, hidden),
            word_embeddings_layernorm=LayerNorm(hidden),
            h=Layers([layer] * c.n_layer),
            ln_f=LayerNorm(hidden),
        ),
        lm_head=Linear(
            hidden,
            c.vocab_size,
            kind="head",
            tied_to="transformer.word_embeddings.weight" if c.tie_word_embeddings else None,
        ),
    )
