"""Falcon: query, key and value in one projection with few key and value heads, attention and an MLP
without gate side by side under one norm or two, or one after the other."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple, plain_mlp
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, LayerNorm, Layers, Linear, Module


class FalconConfig(Schema):
    vocab_size: Size = 65024
    hidden_size: Size = aliases("n_embed", "hidden_size", default=4544)
    num_hidden_layers: Count = 32
    num_attention_heads: Size = 71
    num_kv_heads: Size | None = None
    num_ln_in_parallel_attn: int | None = None
    new_decoder_architecture: bool = False
    multi_query: bool = True
    parallel_attn: bool = True
    bias: bool = False
    ffn_hidden_size: Size | None = None
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        self.num_kv_heads = self.num_kv_heads or self.num_attention_heads
        self.ffn_hidden_size = self.ffn_hidden_size or 4 * self.hidden_size
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)

    def kv_heads(self) -> int:
        if self.new_decoder_architecture:
            return self.num_kv_heads
        return 1 if self.multi_query else self.num_attention_heads


@register("falcon", FalconConfig)
def falcon(c: FalconConfig) -> Module:
    hidden, heads = c.hidden_size, c.num_attention_heads
    dim, norm = hidden // heads, LayerNorm(hidden)
    attention = Module(
        query_key_value=Linear(hidden, (heads + 2 * c.kv_heads()) * dim, c.bias),
        core=Attention(heads, dim, dim, Full()),
        dense=Linear(hidden, hidden, c.bias),
    )
    mlp = plain_mlp(hidden, c.ffn_hidden_size, bias=c.bias, names=("dense_h_to_4h", "dense_4h_to_h"))
    norms = c.num_ln_in_parallel_attn or (2 if c.new_decoder_architecture else 1)
    if not c.parallel_attn:
        layer = Module(input_layernorm=norm, self_attention=attention, post_attention_layernorm=norm, mlp=mlp)
    elif norms == 2:
        layer = Module(ln_attn=norm, ln_mlp=norm, self_attention=attention, mlp=mlp).reading(
            "ln_attn", "ln_mlp", self_attention="ln_attn", mlp="ln_mlp"
        )
    else:
        layer = Module(input_layernorm=norm, self_attention=attention, mlp=mlp).reading(mlp="input_layernorm")
    return Module(
        transformer=Module(
            word_embeddings=Embedding(c.vocab_size, hidden), h=Layers([layer] * c.num_hidden_layers), ln_f=norm
        ),
        lm_head=Linear(
            hidden,
            c.vocab_size,
            kind="head",
            tied_to="transformer.word_embeddings.weight" if c.tie_word_embeddings else None,
        ),
    )
