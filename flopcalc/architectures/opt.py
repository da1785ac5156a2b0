"""OPT: learned positions, LayerNorms before or after, an embedding that may be narrower than the layers."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple
from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, LayerNorm, Layers, Linear, Module


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
    dim = hidden // heads
    norm = LayerNorm(hidden) if c.layer_norm_elementwise_affine else None
    square = Linear(hidden, hidden, c.enable_bias)
    attention = Module(
        q_proj=square, k_proj=square, v_proj=square, core=Attention(heads, dim, dim, Full()), out_proj=square
    ).reading("q_proj", "k_proj", "v_proj")
    mlp = {"fc1": Linear(hidden, c.ffn_dim, c.enable_bias), "fc2": Linear(c.ffn_dim, hidden, c.enable_bias)}
    if c.do_layer_norm_before:
        layer = Module(self_attn_layer_norm=norm, self_attn=attention, final_layer_norm=norm, **mlp)
    else:
        layer = Module(self_attn=attention, self_attn_layer_norm=norm, **mlp, final_layer_norm=norm)
    return Module(
        model=Module(
            decoder=Module(
                embed_tokens=Embedding(c.vocab_size, narrow),
                project_in=Linear(narrow, hidden) if narrow != hidden else None,
                # two unused rows in front
                embed_positions=Embedding(c.max_position_embeddings + 2, hidden, kind="lookup"),
                layers=Layers([layer] * c.num_hidden_layers),
                final_layer_norm=norm if c.do_layer_norm_before else None,
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
