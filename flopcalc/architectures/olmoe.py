"""OLMoE: experts in every layer, norms over all query and key heads."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, check_top_k, decoder_layer, moe
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module, Norm


class OlmoeConfig(Decoder):
    vocab_size: Size = 50304
    hidden_size: Size = 2048
    intermediate_size: Size = 2048
    num_hidden_layers: Count = 16
    num_attention_heads: Size = 16
    attention_bias: bool = False
    num_experts: Size = aliases("num_local_experts", "num_experts", default=64)
    num_experts_per_tok: Size = 8

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_experts)


@register("olmoe", OlmoeConfig)
def olmoe(c: OlmoeConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(
            c,
            Full(),
            bias=c.attention_bias,
            q_norm=Norm(c.hidden_size, "head_norm"),  # as wide as the hidden size's heads, whatever head_dim says
            k_norm=Norm(c.hidden_size // c.num_attention_heads * c.num_key_value_heads, "head_norm"),
        ),
        mlp=moe(c.hidden_size, c.intermediate_size, c.num_experts, c.num_experts_per_tok),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
