"""SmolLM3: llama whose layers without rotary embedding may have a sliding window."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, attention, causal_lm, decoder_layer, each, mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Module


class SmolLM3Config(TypedDecoder):
    vocab_size: Size = 128256
    hidden_size: Size = 2048
    num_hidden_layers: Count = 36
    num_attention_heads: Size = 16
    num_key_value_heads: Size | None = 4
    use_sliding_window: bool = False
    no_rope_layers: list[int] | None = None
    no_rope_layer_interval: Size = 4
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = True

    def default_layer_types(self) -> list[str]:
        slides = self.use_sliding_window and self.sliding_window is not None
        return ["sliding_attention" if slides and not rope else "full_attention" for rope in self.no_rope_layers]

    def derive(self) -> None:
        if self.no_rope_layers is None:  # 1: the layer has rotary embeddings
            every = self.no_rope_layer_interval
            self.no_rope_layers = [int((i + 1) % every != 0) for i in range(self.num_hidden_layers)]
        super().derive()


@register("smollm3", SmolLM3Config)
def smollm3(c: SmolLM3Config) -> Module:
    def layer(kind: str) -> Module:
        return decoder_layer(
            c.hidden_size,
            self_attn=attention(c, c.span(kind), bias=c.attention_bias),
            mlp=mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
        )

    return causal_lm(c, each(layer, c.layer_types))
