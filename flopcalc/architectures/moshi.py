"""Moshi's text model, which is its causal LM: projections one module deeper, gate and up in one matrix.
The audio codec and the depth decoder are parts of the whole model, not of this one."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple, decoder_layer, lm_head
from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, Layers, Linear, Module, Norm


class MoshiConfig(Schema):
    """Its sliding_window reaches no mask."""

    vocab_size: Size = 32000
    hidden_size: Size = 4096
    num_hidden_layers: Count = 32
    num_attention_heads: Size = 32
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    tie_word_embeddings: bool = False
    ffn_dim: Size = 22528

    def derive(self) -> None:
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None:
            self.head_dim = self.hidden_size // self.num_attention_heads
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        check_multiple("num_attention_heads", self.num_attention_heads, "num_key_value_heads", self.num_key_value_heads)
        if self.ffn_dim % 2:
            raise ValueError(f"ffn_dim: found {self.ffn_dim}, expected an even number: half of it is the gate")


def one_deeper(read: int, out: int) -> Module:
    return Module(linear=Linear(read, out))


@register("moshi", MoshiConfig)
def moshi(c: MoshiConfig) -> Module:
    """One row of the embedding stands for no token."""
    hidden, heads, dim = c.hidden_size, c.num_attention_heads, c.head_dim
    kv_width = c.num_key_value_heads * dim
    attention = Module(
        q_proj=one_deeper(hidden, heads * dim),
        k_proj=one_deeper(hidden, kv_width),
        v_proj=one_deeper(hidden, kv_width),
        core=Attention(heads, dim, dim, Full()),
        o_proj=one_deeper(heads * dim, hidden),
    ).reading("q_proj", "k_proj", "v_proj")
    mlp = Module(fc1=Linear(hidden, c.ffn_dim), fc2=Linear(c.ffn_dim // 2, hidden))
    layer = decoder_layer(hidden, self_attn=attention, mlp=mlp)
    return Module(
        model=Module(
            embed_tokens=Embedding(c.vocab_size + 1, hidden),
            layers=Layers([layer] * c.num_hidden_layers),
            norm=Norm(hidden, "final_norm"),
        ),
        lm_head=lm_head(c, None),
    )
