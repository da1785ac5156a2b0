"""DeepSeekMoE, the first DeepSeek with experts: llama's attention, routed experts beside shared ones, the
first layers dense. The structure is that of its published `modeling_deepseek.py`. `deepseek_ref` is
DeepSeek-V4 as a re-quantized publication names it."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    Decoder,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    dense_or_sparse,
    each,
)
from flopcalc.architectures.deepseek_v4 import DeepseekV4Config, deepseek_v4
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Module

register("deepseek_ref", DeepseekV4Config)(deepseek_v4)


class DeepseekConfig(Decoder):
    vocab_size: Size = 102400
    moe_intermediate_size: Size = 1407
    n_shared_experts: Count | None = None
    n_routed_experts: Size | None = None
    num_experts_per_tok: Size | None = None
    moe_layer_freq: Size = 1
    first_k_dense_replace: Count = 0
    attention_bias: bool = False

    def derive(self) -> None:
        super().derive()
        if self.n_routed_experts is not None:
            if self.num_experts_per_tok is None:
                raise ValueError("num_experts_per_tok: found None, expected the number of routed experts a token uses")
            check_top_k(self.num_experts_per_tok, self.n_routed_experts)


@register("deepseek", DeepseekConfig)
def deepseek(c: DeepseekConfig) -> Module:
    def layer(kind: str) -> Module:
        return decoder_layer(
            c.hidden_size,
            self_attn=attention(c, Full(), bias=c.attention_bias),
            mlp=dense_or_sparse(c, kind, c.n_routed_experts or 0, c.n_shared_experts),
        )

    sparse = [
        c.n_routed_experts is not None and i >= c.first_k_dense_replace and i % c.moe_layer_freq == 0
        for i in range(c.num_hidden_layers)
    ]
    return causal_lm(c, each(layer, ("sparse" if routed else "dense" for routed in sparse)))
