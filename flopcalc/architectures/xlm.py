"""XLM as a language model: post-norm layers whose parts stand in lists of their own, reading both ways
unless `causal`."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple, plain_mlp
from flopcalc.architectures.towers import split_attention
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional, Full
from flopcalc.tree import Embedding, LayerNorm, Layers, Linear, Module


class XLMConfig(Schema):
    vocab_size: Size = aliases("n_words", "vocab_size", default=30145)
    emb_dim: Size = aliases("hidden_size", "emb_dim", default=2048)
    n_layers: Count = aliases("num_hidden_layers", "n_layers", default=12)
    n_heads: Size = aliases("num_attention_heads", "n_heads", default=16)
    causal: bool = False
    asm: bool = False
    n_langs: Size = 1
    use_lang_emb: bool = True
    is_encoder: bool = True
    max_position_embeddings: Size = 512
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("emb_dim", self.emb_dim, "n_heads", self.n_heads)
        if self.asm:
            raise ValueError("asm: found True, expected False: the adaptive softmax depends on the words it meets")
        if not self.is_encoder:
            raise ValueError("is_encoder: found False, expected True: the class has no decoder")


@register("xlm", XLMConfig)
def xlm(c: XLMConfig) -> Module:
    hidden = c.emb_dim
    languages = Embedding(c.n_langs, hidden, kind="lookup") if c.n_langs > 1 and c.use_lang_emb else None
    span = Full() if c.causal else Bidirectional()
    attention = split_attention(hidden, c.n_heads, span, names=("q_lin", "k_lin", "v_lin"), out="out_lin")
    ffn = plain_mlp(hidden, 4 * hidden, bias=True, names=("lin1", "lin2"))
    tied_to = "transformer.embeddings.weight" if c.tie_word_embeddings else None
    return Module(
        transformer=Module(
            position_embeddings=Embedding(c.max_position_embeddings, hidden, kind="lookup"),
            lang_embeddings=languages,
            embeddings=Embedding(c.vocab_size, hidden),
            layer_norm_emb=LayerNorm(hidden),
            attentions=Layers([attention] * c.n_layers),
            layer_norm1=Layers([LayerNorm(hidden)] * c.n_layers),
            ffns=Layers([ffn] * c.n_layers),
            layer_norm2=Layers([LayerNorm(hidden)] * c.n_layers),
        ),
        pred_layer=Module(proj=Linear(hidden, c.vocab_size, bias=True, kind="head", tied_to=tied_to)),
    )
