"""XLNet as a language model: attention scores against keys and against relative positions, of which a
document has twice as many as tokens; query, key, value, output and positions are bare parameters."""

from __future__ import annotations

from typing import Literal

from flopcalc.architectures.blocks import check_multiple
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional, Full, Probe, Sum
from flopcalc.tree import Attention, Embedding, LayerNorm, Layers, Linear, Module, Stream, Weight


class XLNetConfig(Schema):
    vocab_size: Size = aliases("n_token", "vocab_size", default=32000)
    d_model: Size = aliases("hidden_size", "d_model", default=1024)
    n_layer: Count = aliases("num_hidden_layers", "n_layer", default=24)
    n_head: Size = aliases("num_attention_heads", "n_head", default=16)
    d_inner: Size = 4096
    d_head: Size | None = None
    attn_type: Literal["bi", "uni"] = "bi"
    bi_data: bool = False
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("d_model", self.d_model, "n_head", self.n_head)
        if self.d_head is None:
            self.d_head = self.d_model // self.n_head
        if self.d_head != self.d_model // self.n_head:
            raise ValueError(f"d_head: found {self.d_head}, expected d_model // n_head = {self.d_model // self.n_head}")


@register("xlnet", XLNetConfig)
def xlnet(c: XLNetConfig) -> Module:
    """`uni` masks what comes later and has one position for each distance back, and one more."""
    hidden, heads, dim = c.d_model, c.n_head, c.d_model // c.n_head
    both_ways = c.attn_type == "bi"
    span = Bidirectional() if both_ways else Full()
    one_more = Sum((Full(), Probe()))

    def matrix() -> Weight:
        return Weight((hidden, heads, dim), "linear", transposed=True)

    def bias(*shape: int) -> Weight:
        return Weight((*shape, heads, dim))

    segments = Module(r_s_bias=bias(), seg_embed=bias(2)).never_run()
    positions = Module(r=matrix(), **{"": segments}).on(Stream(rows=2) if both_ways else Stream(extra=1))
    layer = Module(
        rel_attn=Module(
            q=matrix(),
            k=matrix(),
            v=matrix(),
            **{"": positions},
            r_r_bias=bias(),
            r_w_bias=bias(),
            core=Attention(heads, dim, dim, span),
            distances=Attention(heads, 2 * dim, 0, span) if both_ways else Attention(heads, dim, 0, one_more),
            o=matrix(),
            layer_norm=LayerNorm(hidden),
        ).reading("q", "k", "v"),
        ff=Module(
            layer_1=Linear(hidden, c.d_inner, bias=True),
            layer_2=Linear(c.d_inner, hidden, bias=True),
            layer_norm=LayerNorm(hidden),
        ),
    )
    tied_to = "transformer.word_embedding.weight" if c.tie_word_embeddings else None
    return Module(
        transformer=Module(
            **{"": Module(mask_emb=Weight((1, 1, hidden))).never_run()},
            word_embedding=Embedding(c.vocab_size, hidden),
            layer=Layers([layer] * c.n_layer),
        ),
        lm_loss=Linear(hidden, c.vocab_size, bias=True, kind="head", tied_to=tied_to),
    )
