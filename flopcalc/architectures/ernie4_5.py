"""ERNIE 4.5, dense and MoE: llama with one switch for all biases."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    Decoder,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    each,
    experts,
    mlp,
    router,
)
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module, Weight


class Ernie4_5Config(Decoder):
    vocab_size: Size = 103424
    hidden_size: Size = 1024
    intermediate_size: Size = 3072
    num_hidden_layers: Count = 18
    num_attention_heads: Size = 16
    num_key_value_heads: Size | None = 2
    head_dim: Size | None = 128
    tie_word_embeddings: bool = True
    use_bias: bool = False


@register("ernie4_5", Ernie4_5Config)
def ernie4_5(c: Ernie4_5Config) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), bias=c.use_bias),
        mlp=mlp(c.hidden_size, c.intermediate_size, bias=c.use_bias),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))


class Ernie4_5MoeConfig(Decoder):
    vocab_size: Size = 103424
    hidden_size: Size = 2560
    intermediate_size: Size = 12288
    num_hidden_layers: Count = 28
    num_attention_heads: Size = 20
    num_key_value_heads: Size = 4
    tie_word_embeddings: bool = True
    use_bias: bool = False
    moe_intermediate_size: Size = 1536
    moe_k: Size = aliases("num_experts_per_tok", "moe_k", default=6)
    moe_num_experts: Size = aliases("num_experts", "moe_num_experts", default=64)
    moe_num_shared_experts: Count = 2
    moe_layer_start_index: Count = 1
    moe_layer_end_index: int = -1
    moe_layer_interval: Size = 1

    def derive(self) -> None:
        super().derive()
        if self.moe_layer_end_index == -1:
            self.moe_layer_end_index = self.num_hidden_layers - 1
        check_top_k(self.moe_k, self.moe_num_experts, "moe_k")

    def is_sparse(self, i: int) -> bool:
        inside = self.moe_layer_start_index <= i <= self.moe_layer_end_index
        return inside and (i + 1) % self.moe_layer_interval == 0


@register("ernie4_5_moe", Ernie4_5MoeConfig)
def ernie4_5_moe(c: Ernie4_5MoeConfig) -> Module:
    hidden, width, num_experts, shared = (
        c.hidden_size,
        c.moe_intermediate_size,
        c.moe_num_experts,
        c.moe_num_shared_experts,
    )
    sparse_mlp = Module(
        gate=router(hidden, num_experts, moe_statics=Module(e_score_correction_bias=Weight((1, num_experts)))),
        experts=experts(hidden, width, num_experts, c.moe_k),
        shared_experts=mlp(hidden, width * shared, bias=c.use_bias) if shared else None,
    ).reading("gate", "experts", "shared_experts")

    def layer(sparse: bool) -> Module:
        return decoder_layer(
            hidden,
            self_attn=attention(c, Full(), bias=c.use_bias),
            mlp=sparse_mlp if sparse else mlp(hidden, c.intermediate_size, bias=c.use_bias),
        )

    return causal_lm(c, each(layer, map(c.is_sparse, range(c.num_hidden_layers))), head_bias=c.use_bias)
