"""MPT: no biases, LayerNorms with a weight alone, an MLP without gate. The transformers model takes four
times the width for it whatever `expansion_ratio` says, and no learned positions."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple, plain_mlp
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, LayerNorm, Layers, Linear, Module


class MptConfig(Schema):
    vocab_size: Size = 50368
    d_model: Size = aliases("hidden_size", "d_model", default=2048)
    n_heads: Size = aliases("num_attention_heads", "n_heads", default=16)
    n_layers: Count = aliases("num_hidden_layers", "n_layers", default=24)
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("d_model", self.d_model, "n_heads", self.n_heads)


@register("mpt", MptConfig)
def mpt(c: MptConfig) -> Module:
    hidden, dim, norm = c.d_model, c.d_model // c.n_heads, LayerNorm(c.d_model, bias=False)
    block = Module(
        norm_1=norm,
        attn=Module(
            Wqkv=Linear(hidden, 3 * hidden),
            core=Attention(c.n_heads, dim, dim, Full()),
            out_proj=Linear(hidden, hidden),
        ),
        norm_2=norm,
        ffn=plain_mlp(hidden, 4 * hidden),
    )
    return Module(
        transformer=Module(wte=Embedding(c.vocab_size, hidden), blocks=Layers([block] * c.n_layers), norm_f=norm),
        lm_head=Linear(
            hidden, c.vocab_size, kind="head", tied_to="transformer.wte.weight" if c.tie_word_embeddings else None
        ),
    )
