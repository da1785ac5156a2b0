"""gpt-oss: alternating windows, attention sinks, biases everywhere, experts with biases."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, attention, causal_lm, check_top_k, decoder_layer, each, router
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.tree import Module, Routed, Weight


class GptOssConfig(TypedDecoder):
    vocab_size: Size = 201088
    hidden_size: Size = 2880
    intermediate_size: Size = 2880
    num_hidden_layers: Count = 36
    num_attention_heads: Size = 64
    num_key_value_heads: Size | None = 8
    head_dim: Size | None = 64
    sliding_window: Count | None = 128
    num_local_experts: Size = aliases("num_local_experts", "num_experts", default=128)
    num_experts_per_tok: Size = aliases("num_experts_per_tok", "experts_per_token", default=4)
    attention_bias: bool = True

    def default_layer_types(self) -> list[str]:
        return ["full_attention" if i % 2 else "sliding_attention" for i in range(self.num_hidden_layers)]

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_local_experts)


@register("gpt_oss", GptOssConfig)
def gpt_oss(c: GptOssConfig) -> Module:
    hidden, width, num_experts = c.hidden_size, c.intermediate_size, c.num_local_experts

    def layer(kind: str) -> Module:
        return decoder_layer(
            hidden,
            self_attn=attention(c, c.span(kind), bias=c.attention_bias, sinks=Weight((c.num_attention_heads,))),
            mlp=Module(
                router=router(hidden, num_experts, bias=Weight((num_experts,), "bias")),
                experts=Routed(
                    num_experts,
                    c.num_experts_per_tok,
                    gate_up_proj=Weight((num_experts, hidden, 2 * width), "experts", transposed=True),
                    gate_up_proj_bias=Weight((num_experts, 2 * width), "bias"),
                    down_proj=Weight((num_experts, width, hidden), "experts", transposed=True),
                    down_proj_bias=Weight((num_experts, hidden), "bias"),
                ),
            ).reading("router", "experts"),
        )

    return causal_lm(c, each(layer, c.layer_types))
