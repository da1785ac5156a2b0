"""Youtu-LLM: DeepSeek's latent attention over a dense gated MLP."""

from __future__ import annotations

from flopcalc.architectures.blocks import causal_lm, decoder_layer, mla, mlp
from flopcalc.architectures.deepseek import Latent
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module


class YoutuConfig(Latent):
    vocab_size: Size = 128256
    hidden_size: Size = 2048
    intermediate_size: Size = 6144
    num_hidden_layers: Count = 32
    num_attention_heads: Size = 16
    tie_word_embeddings: bool = True


@register("youtu", YoutuConfig)
def youtu(c: YoutuConfig) -> Module:
    layer = decoder_layer(c.hidden_size, self_attn=mla(c, Full()), mlp=mlp(c.hidden_size, c.intermediate_size))
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
