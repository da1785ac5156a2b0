"""BioGPT and XGLM: OPT's layers, norms in front, a head tied to the embedding."""

from __future__ import annotations

from flopcalc.architectures.blocks import Stack, check_multiple, fc_layer, lm_head
from flopcalc.architectures.towers import split_attention
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Embedding, LayerNorm, Layers, Linear, Module


class BioGptConfig(Stack):
    vocab_size: Size = 42384
    hidden_size: Size = 1024
    intermediate_size: Size = 4096
    num_hidden_layers: Count = 24
    num_attention_heads: Size = 16
    max_position_embeddings: Size = 1024
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)


@register("biogpt", BioGptConfig)
def biogpt(c: BioGptConfig) -> Module:
    hidden = c.hidden_size
    attention = split_attention(hidden, c.num_attention_heads, Full())
    layer = fc_layer(hidden, c.intermediate_size, attention, pre_norm=True)
    return Module(
        biogpt=Module(
            embed_tokens=Embedding(c.vocab_size, hidden),
            embed_positions=Embedding(c.max_position_embeddings + 2, hidden, kind="lookup"),  # two unused rows in front
            layers=Layers([layer] * c.num_hidden_layers),
            layer_norm=LayerNorm(hidden),
        ),
        output_projection=lm_head(c, "biogpt.embed_tokens.weight" if c.tie_word_embeddings else None),
    )


class XGLMConfig(Schema):
    vocab_size: Size = 256008
    d_model: Size = aliases("hidden_size", "d_model", default=1024)
    ffn_dim: Size = 4096
    num_layers: Count = aliases("num_hidden_layers", "num_layers", default=24)
    attention_heads: Size = aliases("num_attention_heads", "attention_heads", default=16)
    add_cross_attention: bool = False
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("d_model", self.d_model, "attention_heads", self.attention_heads)


@register("xglm", XGLMConfig)
def xglm(c: XGLMConfig) -> Module:
    """Positions are computed; cross-attention, where asked for, waits for an encoder."""
    hidden = c.d_model
    attention = split_attention(hidden, c.attention_heads, Full())
    crossed = attention if c.add_cross_attention else None
    layer = fc_layer(hidden, c.ffn_dim, attention, pre_norm=True, encoder_attn=crossed)
    tied_to = "model.embed_tokens.weight" if c.tie_word_embeddings else None
    return Module(
        model=Module(
            embed_tokens=Embedding(c.vocab_size, hidden),
            layers=Layers([layer] * c.num_layers),
            layer_norm=LayerNorm(hidden),
        ),
        lm_head=Linear(hidden, c.vocab_size, kind="head", tied_to=tied_to),
    )
