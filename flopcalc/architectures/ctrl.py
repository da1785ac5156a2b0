"""CTRL: LayerNorms in front, computed positions, a head with a bias, tied to the embedding."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple
from flopcalc.architectures.towers import split_attention
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Embedding, LayerNorm, Layers, Linear, Module


class CTRLConfig(Schema):
    vocab_size: Size = 246534
    n_embd: Size = aliases("hidden_size", "n_embd", default=1280)
    dff: Size = 8192
    n_layer: Count = aliases("num_hidden_layers", "n_layer", default=48)
    n_head: Size = aliases("num_attention_heads", "n_head", default=16)
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("n_embd", self.n_embd, "n_head", self.n_head)


@register("ctrl", CTRLConfig)
def ctrl(c: CTRLConfig) -> Module:
    hidden, norm = c.n_embd, LayerNorm(c.n_embd)
    layer = Module(
        layernorm1=norm,
        multi_head_attention=split_attention(hidden, c.n_head, Full(), names=("Wq", "Wk", "Wv"), out="dense"),
        layernorm2=norm,
        ffn=Module(**{"0": Linear(hidden, c.dff, bias=True), "2": Linear(c.dff, hidden, bias=True)}),
    )
    tied_to = "transformer.w.weight" if c.tie_word_embeddings else None
    return Module(
        transformer=Module(w=Embedding(c.vocab_size, hidden), h=Layers([layer] * c.n_layer), layernorm=norm),
        lm_head=Linear(hidden, c.vocab_size, bias=True, kind="head", tied_to=tied_to),
    )
