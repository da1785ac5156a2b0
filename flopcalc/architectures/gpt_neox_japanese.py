"""GPT-NeoX-Japanese: no biases but one behind the attention of the last layer; a tied head."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple, decoder_layer, each, lm_head, plain_mlp
from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, LayerNorm, Linear, Module, Weight


class GPTNeoXJapaneseConfig(Schema):
    vocab_size: Size = 32000
    hidden_size: Size = 2560
    num_hidden_layers: Count = 32
    num_attention_heads: Size = 32
    intermediate_multiple_size: Size = 4
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)


@register("gpt_neox_japanese", GPTNeoXJapaneseConfig)
def gpt_neox_japanese(c: GPTNeoXJapaneseConfig) -> Module:
    hidden, dim = c.hidden_size, c.hidden_size // c.num_attention_heads
    width = hidden * c.intermediate_multiple_size

    def layer(last: bool) -> Module:
        return decoder_layer(
            hidden,
            norm=LayerNorm,
            attention=Module(
                query_key_value=Linear(hidden, 3 * hidden),
                core=Attention(c.num_attention_heads, dim, dim, Full()),
                dense=Linear(hidden, hidden),
                dense_bias=Weight((hidden,), "bias") if last else None,
            ),
            mlp=plain_mlp(hidden, width, names=("dense_h_to_4h", "dense_4h_to_h")),
        )

    tied_to = "gpt_neox_japanese.embed_in.weight" if c.tie_word_embeddings else None
    return Module(
        gpt_neox_japanese=Module(
            embed_in=Embedding(c.vocab_size, hidden),
            layers=each(layer, [i == c.num_hidden_layers - 1 for i in range(c.num_hidden_layers)]),
            final_layer_norm=LayerNorm(hidden),
        ),
        embed_out=lm_head(c, tied_to),
    )
