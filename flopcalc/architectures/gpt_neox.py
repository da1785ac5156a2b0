"""GPT-NeoX (Pythia): query, key and value in one projection, attention and an MLP without gate side by
side or one after the other, LayerNorms."""

from __future__ import annotations

from flopcalc.architectures.blocks import Stack, check_multiple, plain_mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, LayerNorm, Layers, Linear, Module


class GptNeoXConfig(Stack):
    vocab_size: Size = 50432
    hidden_size: Size = 6144
    intermediate_size: Size = 24576
    num_hidden_layers: Count = 44
    num_attention_heads: Size = 64
    attention_bias: bool = True
    use_parallel_residual: bool = True

    def derive(self) -> None:
        super().derive()
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)


@register("gpt_neox", GptNeoXConfig)
def gpt_neox(c: GptNeoXConfig) -> Module:
    hidden, heads, dim = c.hidden_size, c.num_attention_heads, c.hidden_size // c.num_attention_heads
    layer = Module(
        input_layernorm=LayerNorm(hidden),
        attention=Module(
            query_key_value=Linear(hidden, 3 * hidden, c.attention_bias),
            core=Attention(heads, dim, dim, Full()),
            dense=Linear(hidden, hidden, c.attention_bias),
        ),
        post_attention_layernorm=LayerNorm(hidden),
        mlp=plain_mlp(hidden, c.intermediate_size, bias=True, names=("dense_h_to_4h", "dense_4h_to_h")),
    )
    if c.use_parallel_residual:  # both norms read the layer's input
        layer = layer.reading("post_attention_layernorm", mlp="post_attention_layernorm")
    return Module(
        gpt_neox=Module(
            embed_in=Embedding(c.vocab_size, hidden),
            layers=Layers([layer] * c.num_hidden_layers),
            final_layer_norm=LayerNorm(hidden),
        ),
        lm_head=Linear(
            hidden,
            c.vocab_size,
            kind="head",
            tied_to="gpt_neox.embed_in.weight" if c.tie_word_embeddings else None,
        ),
    )
