"""CWM: llama without attention biases, a sliding window on three of four layers, the first is full."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, attention, causal_lm, decoder_layer, each, mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Module


class CwmConfig(TypedDecoder):
    vocab_size: Size = 128256
    hidden_size: Size = 6144
    intermediate_size: Size = 21504
    num_hidden_layers: Count = 64
    num_attention_heads: Size = 48
    num_key_value_heads: Size | None = 8
    head_dim: Size | None = 128
    mlp_bias: bool = False
    sliding_window: Count | None = 8192

    def default_layer_types(self) -> list[str]:
        return ["sliding_attention" if i % 4 else "full_attention" for i in range(self.num_hidden_layers)]

    def derive(self) -> None:
        self.sliding_window = self.sliding_window or None
        super().derive()


@register("cwm", CwmConfig)
def cwm(c: CwmConfig) -> Module:
    def layer(kind: str) -> Module:
        return decoder_layer(
            c.hidden_size,
            self_attn=attention(c, c.span(kind)),
            mlp=mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
        )

    return causal_lm(c, each(layer, c.layer_types))
