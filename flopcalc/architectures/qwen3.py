"""Qwen3, dense and MoE: RMSNorms on the query and key heads."""

from __future__ import annotations

from flopcalc.architectures.blocks import attention, causal_lm, decoder_layer, each, mlp, moe
from flopcalc.architectures.qwen2 import Qwen2Config, SparseStep
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full, Window
from flopcalc.tree import Layers, Module


class Qwen3Config(Qwen2Config):
    head_dim: Size | None = 128
    attention_bias: bool = False


def qwen3_layers(c: Qwen3Config) -> Layers:
    def layer(kind: str) -> Module:
        return decoder_layer(
            c.hidden_size,
            self_attn=attention(c, c.span(kind), bias=c.attention_bias, qk_norm=True),
            mlp=mlp(c.hidden_size, c.intermediate_size),
        )

    return each(layer, c.layer_types)


@register("qwen3", Qwen3Config)
def qwen3(c: Qwen3Config) -> Module:
    return causal_lm(c, qwen3_layers(c))


class Qwen3MoeConfig(SparseStep):
    vocab_size: Size = 151936
    hidden_size: Size = 2048
    intermediate_size: Size = 6144
    num_hidden_layers: Count = 24
    num_key_value_heads: Size | None = 4
    moe_intermediate_size: Size = 768
    num_experts: Count = aliases("num_experts", "num_local_experts", default=128)
    num_experts_per_tok: Size = 8
    attention_bias: bool = False
    use_sliding_window: bool = False
    sliding_window: Count | None = 4096

    def derive(self) -> None:
        if not self.use_sliding_window:
            self.sliding_window = None
        super().derive()


def qwen3_moe_layers(c: Qwen3MoeConfig) -> Layers:
    span = Window(c.sliding_window) if c.sliding_window else Full()

    def layer(sparse: bool) -> Module:
        return decoder_layer(
            c.hidden_size,
            self_attn=attention(c, span, bias=c.attention_bias, qk_norm=True),
            mlp=moe(c.hidden_size, c.moe_intermediate_size, c.num_experts, c.num_experts_per_tok)
            if sparse
            else mlp(c.hidden_size, c.intermediate_size),
        )

    return each(layer, c.is_sparse())


@register("qwen3_moe", Qwen3MoeConfig)
def qwen3_moe(c: Qwen3MoeConfig) -> Module:
    return causal_lm(c, qwen3_moe_layers(c))
