"""VaultGemma: gemma with a sliding window on every second layer, norms before attention and MLP."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, attention, causal_lm, each, mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Module, Norm


class VaultGemmaConfig(TypedDecoder):
    vocab_size: Size = 256000
    hidden_size: Size = 2304
    intermediate_size: Size = 9216
    num_hidden_layers: Count = 26
    num_attention_heads: Size = 8
    num_key_value_heads: Size = 4
    head_dim: Size = 256
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    sliding_window: Count | None = 4096

    def default_layer_types(self) -> list[str]:
        return ["full_attention" if i % 2 else "sliding_attention" for i in range(self.num_hidden_layers)]


@register("vaultgemma", VaultGemmaConfig)
def vaultgemma(c: VaultGemmaConfig) -> Module:
    def layer(kind: str) -> Module:
        return Module(
            input_layernorm=Norm(c.hidden_size),
            self_attn=attention(c, c.span(kind), bias=c.attention_bias),
            pre_feedforward_layernorm=Norm(c.hidden_size),
            mlp=mlp(c.hidden_size, c.intermediate_size),
        )

    return causal_lm(c, each(layer, c.layer_types))
