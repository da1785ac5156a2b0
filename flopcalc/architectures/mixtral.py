"""Mixtral: mistral with a mixture of experts in every layer."""

from __future__ import annotations

from flopcalc.architectures.blocks import attention, causal_lm, check_top_k, decoder_layer, moe, window
from flopcalc.architectures.mistral import MistralConfig
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.tree import Layers, Module


class MixtralConfig(MistralConfig):
    sliding_window: Count | None = None
    num_local_experts: Size = aliases("num_experts", "num_local_experts", default=8)
    num_experts_per_tok: Size = 2

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_local_experts)


@register("mixtral", MixtralConfig)
def mixtral(c: MixtralConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, window(c.sliding_window)),
        mlp=moe(c.hidden_size, c.intermediate_size, c.num_local_experts, c.num_experts_per_tok),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
