"""DBRX: experts in every layer, query, key and value in one projection, LayerNorms without bias."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple, check_top_k
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, LayerNorm, Layers, Linear, Module, Routed, Weight


class DbrxAttentionConfig(Schema):
    kv_n_heads: Size = 1


class DbrxFfnConfig(Schema):
    ffn_hidden_size: Size = 3584
    moe_num_experts: Size = 4
    moe_top_k: Size = 1

    def derive(self) -> None:
        check_top_k(self.moe_top_k, self.moe_num_experts, "moe_top_k")


class DbrxConfig(Schema):
    vocab_size: Size = 32000
    d_model: Size = aliases("hidden_size", "d_model", default=2048)
    n_heads: Size = aliases("num_attention_heads", "n_heads", default=16)
    n_layers: Count = aliases("num_hidden_layers", "n_layers", default=24)
    attn_config: DbrxAttentionConfig = DbrxAttentionConfig()
    ffn_config: DbrxFfnConfig = DbrxFfnConfig()
    tie_word_embeddings: bool = False

    def derive(self) -> None:
        check_multiple("d_model", self.d_model, "n_heads", self.n_heads)
        check_multiple("n_heads", self.n_heads, "attn_config.kv_n_heads", self.attn_config.kv_n_heads)
        if self.tie_word_embeddings:
            raise ValueError("tie_word_embeddings: found True, expected False: DBRX has a head of its own")


def fused_experts(c: DbrxConfig) -> Routed:
    """Three matrices, each of all experts' rows one below the other."""
    moe = c.ffn_config
    rows = Weight((moe.moe_num_experts * moe.ffn_hidden_size, c.d_model), "experts")
    return Routed(moe.moe_num_experts, moe.moe_top_k, mlp=Module(w1=rows, v1=rows, w2=rows).reading("w1", "v1"))


@register("dbrx", DbrxConfig)
def dbrx(c: DbrxConfig) -> Module:
    hidden, dim = c.d_model, c.d_model // c.n_heads
    attention = Module(
        Wqkv=Linear(hidden, hidden + 2 * c.attn_config.kv_n_heads * dim),
        core=Attention(c.n_heads, dim, dim, Full()),
        out_proj=Linear(hidden, hidden),
    )
    layer = Module(
        norm_attn_norm=Module(
            norm_1=LayerNorm(hidden, bias=False), attn=attention, norm_2=LayerNorm(hidden, bias=False)
        ),
        ffn=Module(
            router=Module(layer=Linear(hidden, c.ffn_config.moe_num_experts, kind="router")), experts=fused_experts(c)
        ).reading("router", "experts"),
    )
    return Module(
        transformer=Module(
            wte=Embedding(c.vocab_size, hidden),
            blocks=Layers([layer] * c.n_layers),
            norm_f=LayerNorm(hidden, bias=False, kind="final_norm"),
        ),
        lm_head=Linear(hidden, c.vocab_size, kind="head"),
    )
