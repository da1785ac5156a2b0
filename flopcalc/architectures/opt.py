"""OPT: learned positions, LayerNorms before or after, an embedding that may be narrower than the layers."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple, fc_layer
from flopcalc.architectures.towers import split_attention
from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Embedding, LayerNorm, Layers, Linear, Module


class OptConfig(Schema):
    vocab_size: Size = 50272
    hidden_size: Size = 768
    num_hidden_layers: Count = 12
    ffn_dim: Size = 3072
    num_attention_heads: Size = 12
    max_position_embeddings: Size = 2048
    word_embed_proj_dim: Size | None = None
    do_layer_norm_before: bool = True
    enable_bias: bool = True
    layer_norm_elementwise_affine: bool = True
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        if self.word_embed_proj_dim is None:
            self.word_embed_proj_dim = self.hidden_size
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)


@register("opt", OptConfig)
def opt(c: OptConfig) -> Module:
    hidden, heads, narrow = c.hidden_size, c.num_attention_heads, c.word_embed_proj_dim
    attention = split_attention(hidden, heads, Full(), bias=c.enable_bias)
    pre_norm, affine = c.do_layer_norm_before, c.layer_norm_elementwise_affine
    layer = fc_layer(hidden, c.ffn_dim, attention, pre_norm=pre_norm, bias=c.enable_bias, affine=affine)
    return Module(
        model=Module(
            decoder=Module(
                embed_tokens=Embedding(c.vocab_size, narrow),
                project_in=Linear(narrow, hidden) if narrow != hidden else None,
                # two unused rows in front
                embed_positions=Embedding(c.max_position_embeddings + 2, hidden, kind="lookup"),
                layers=Layers([layer] * c.num_hidden_layers),
                final_layer_norm=LayerNorm(hidden) if pre_norm and affine else None,
                project_out=Linear(hidden, narrow) if narrow != hidden else None,
            )
        ),
        lm_head=Linear(
            narrow,
            c.vocab_size,
            kind="head",
            tied_to="model.decoder.embed_tokens.weight" if c.tie_word_embeddings else None,
        ),
    )
