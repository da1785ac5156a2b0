"""Cohere (Command R): attention and MLP side by side under one norm."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module, Norm, Weight


class CohereConfig(Decoder):
    vocab_size: Size = 256000
    hidden_size: Size = 8192
    intermediate_size: Size = 22528
    num_hidden_layers: Count = 40
    num_attention_heads: Size = 64
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    use_qk_norm: bool | None = False


@register("cohere", CohereConfig)
def cohere(c: CohereConfig) -> Module:
    def norm(heads: int) -> Module | None:  # LayerNorm of a (heads, head_dim) weight, no bias
        return Module(weight=Weight((heads, c.head_dim), "norm")) if c.use_qk_norm else None

    layer = Module(
        input_layernorm=Norm(c.hidden_size),
        self_attn=attention(
            c,
            Full(),
            bias=c.attention_bias,
            q_norm=norm(c.num_attention_heads),
            k_norm=norm(c.num_key_value_heads),
        ),
        mlp=mlp(c.hidden_size, c.intermediate_size),
    ).reading(mlp="input_layernorm")
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
