"""Phi (1, 1.5, 2): attention and an MLP without gate side by side, biases everywhere, on the head too."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, causal_lm, plain_mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, LayerNorm, Layers, Linear, Module


class PhiConfig(Decoder):
    vocab_size: Size = 51200
    hidden_size: Size = 2048
    intermediate_size: Size = 8192
    num_hidden_layers: Count = 24
    qk_layernorm: bool = False


@register("phi", PhiConfig)
def phi(c: PhiConfig) -> Module:
    hidden, heads, kv_heads, dim = c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim
    head_norm = LayerNorm(hidden // heads) if c.qk_layernorm else None
    layer = Module(
        input_layernorm=LayerNorm(hidden),
        self_attn=Module(
            q_proj=Linear(hidden, heads * dim, bias=True),
            k_proj=Linear(hidden, kv_heads * dim, bias=True),
            v_proj=Linear(hidden, kv_heads * dim, bias=True),
            q_layernorm=head_norm,
            k_layernorm=head_norm,
            core=Attention(heads, dim, dim, Full()),
            dense=Linear(heads * dim, hidden, bias=True),
        ).reading("q_proj", "k_proj", "v_proj", q_layernorm="q_proj", k_layernorm="k_proj"),
        mlp=plain_mlp(hidden, c.intermediate_size, bias=True, names=("fc1", "fc2")),
    ).reading(mlp="input_layernorm")
    layers = Layers([layer] * c.num_hidden_layers)
    return causal_lm(c, layers, head_bias=True, norm=None, final_layernorm=LayerNorm(hidden))
