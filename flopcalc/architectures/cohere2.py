"""Cohere 2 (Command R7B): attention and MLP side by side under one norm, three windows to a full layer."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, attention, causal_lm, each, mlp
from flopcalc.config import Count, Size, legacy
from flopcalc.estimators import register
from flopcalc.tree import Module, Norm


class Cohere2Config(TypedDecoder):
    vocab_size: Size = 256000
    hidden_size: Size = 8192
    intermediate_size: Size = 22528
    num_hidden_layers: Count = 40
    num_attention_heads: Size = 64
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    sliding_window: Count | None = 4096
    sliding_window_pattern: Size = legacy(4)

    def default_layer_types(self) -> list[str]:
        every = self.sliding_window_pattern
        return ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(self.num_hidden_layers)]

    def derive(self) -> None:
        super().derive()
        self.head_dim = self.hidden_size // self.num_attention_heads


@register("cohere2", Cohere2Config)
def cohere2(c: Cohere2Config) -> Module:
    def layer(kind: str) -> Module:
        return Module(
            input_layernorm=Norm(c.hidden_size),
            self_attn=attention(c, c.span(kind), bias=c.attention_bias),
            mlp=mlp(c.hidden_size, c.intermediate_size),
        ).reading(mlp="input_layernorm")

    return causal_lm(c, each(layer, c.layer_types))
