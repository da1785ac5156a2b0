"""StarCoder2: an MLP without gate, LayerNorms, biases everywhere, one window on all layers or none."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, decoder_layer, plain_mlp, window
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import LayerNorm, Layers, Module


class Starcoder2Config(Decoder):
    vocab_size: Size = 49152
    hidden_size: Size = 3072
    intermediate_size: Size = 12288
    num_hidden_layers: Count = 30
    num_attention_heads: Size = 24
    num_key_value_heads: Size = 2
    tie_word_embeddings: bool = True
    sliding_window: Count | None = None
    use_bias: bool = True


@register("starcoder2", Starcoder2Config)
def starcoder2(c: Starcoder2Config) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        norm=LayerNorm,
        self_attn=attention(c, window(c.sliding_window), bias=c.use_bias),
        mlp=plain_mlp(c.hidden_size, c.intermediate_size, bias=c.use_bias, names=("c_fc", "c_proj")),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers), norm=LayerNorm(c.hidden_size))
