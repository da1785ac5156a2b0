"""nanochat: an MLP without gate, norms without parameters."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, plain_mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module


class NanoChatConfig(Decoder):
    vocab_size: Size = 50304
    hidden_size: Size = 768
    intermediate_size: Size = 8192
    num_hidden_layers: Count = 12
    num_attention_heads: Size = 6
    attention_bias: bool = False


@register("nanochat", NanoChatConfig)
def nanochat(c: NanoChatConfig) -> Module:
    layer = Module(
        self_attn=attention(c, Full(), bias=c.attention_bias),
        mlp=plain_mlp(c.hidden_size, c.intermediate_size, names=("fc1", "fc2")),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers), norm=None)
