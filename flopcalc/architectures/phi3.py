"""Phi-3: query, key and value in one projection, gate and up in another."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, causal_lm, decoder_layer, fused_mlp, window
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Attention, Layers, Linear, Module


class Phi3Config(Decoder):
    vocab_size: Size = 32064
    hidden_size: Size = 3072
    intermediate_size: Size = 8192
    sliding_window: Count | None = None


def phi3_layers(c: Phi3Config) -> Layers:
    heads, kv_heads, dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    layer = decoder_layer(
        c.hidden_size,
        self_attn=Module(
            qkv_proj=Linear(c.hidden_size, (heads + 2 * kv_heads) * dim),
            core=Attention(heads, dim, dim, window(c.sliding_window)),
            o_proj=Linear(heads * dim, c.hidden_size),
        ),
        mlp=fused_mlp(c.hidden_size, c.intermediate_size),
    )
    return Layers([layer] * c.num_hidden_layers)


@register("phi3", Phi3Config)
def phi3(c: Phi3Config) -> Module:
    return causal_lm(c, phi3_layers(c))
