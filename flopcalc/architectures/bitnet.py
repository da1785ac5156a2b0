"""BitNet b1.58: llama with a norm before the output projection and before the down projection."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, decoder_layer
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Linear, Module, Norm


class BitNetConfig(Decoder):
    vocab_size: Size = 128256
    hidden_size: Size = 2560
    intermediate_size: Size = 6912
    num_hidden_layers: Count = 30
    num_attention_heads: Size = 20
    num_key_value_heads: Size | None = 5
    attention_bias: bool = False


@register("bitnet", BitNetConfig)
def bitnet(c: BitNetConfig) -> Module:
    hidden, width = c.hidden_size, c.intermediate_size
    layer = decoder_layer(
        hidden,
        self_attn=attention(c, Full(), bias=c.attention_bias, after_core={"attn_sub_norm": Norm(hidden)}),
        mlp=Module(
            gate_proj=Linear(hidden, width),
            up_proj=Linear(hidden, width),
            ffn_sub_norm=Norm(width),
            down_proj=Linear(width, hidden),
        ).reading("gate_proj", "up_proj"),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
