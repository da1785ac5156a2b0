"""FlexOlmo: OLMo 2 with a mixture of experts in every layer."""

from __future__ import annotations

from flopcalc.architectures.blocks import attention, causal_lm, moe
from flopcalc.architectures.olmoe import OlmoeConfig
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module, Norm


class FlexOlmoConfig(OlmoeConfig):
    vocab_size: Size = 100352
    hidden_size: Size = 4096
    intermediate_size: Size = 11008
    num_hidden_layers: Count = 32
    num_attention_heads: Size = 32
    num_experts: Size = aliases("num_local_experts", "num_experts", default=7)
    num_experts_per_tok: Size = 5


@register("flex_olmo", FlexOlmoConfig)
def flex_olmo(c: FlexOlmoConfig) -> Module:
    layer = Module(
        self_attn=attention(c, Full(), bias=c.attention_bias, qk_norm="all_heads"),
        post_attention_layernorm=Norm(c.hidden_size),
        mlp=moe(c.hidden_size, c.intermediate_size, c.num_experts, c.num_experts_per_tok),
        post_feedforward_layernorm=Norm(c.hidden_size),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
