"""MiMo-V2-Flash: values narrower than keys; windowed layers have twice the key-value heads and sinks."""

from __future__ import annotations

from functools import partial

from flopcalc.architectures.blocks import (
    SparseLayers,
    TypedDecoder,
    causal_lm,
    check_multiple,
    check_top_k,
    decoder_layer,
    dense_or_sparse,
    each,
)
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.mtp import next_token_depth, register_mtp
from flopcalc.tree import Attention, Linear, Module, Weight


class MiMoV2FlashConfig(TypedDecoder, SparseLayers):
    leading_dense = 1

    vocab_size: Size = 152576
    intermediate_size: Size = 16384
    num_hidden_layers: Count = 48
    num_attention_heads: Size = 64
    num_key_value_heads: Size = 4
    head_dim: Size = 192
    v_head_dim: Size = 128
    attention_bias: bool = False
    sliding_window: Size = 129
    sliding_window_size: Size | None = legacy()
    moe_intermediate_size: Size = 2048
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=256)
    num_experts_per_tok: Size = 8

    def default_layer_types(self) -> list[str]:
        full = [i == 0 or (i + 1) % 6 == 0 for i in range(self.num_hidden_layers)]
        return ["full_attention" if is_full else "sliding_attention" for is_full in full]

    def derive(self) -> None:
        super().derive()
        if self.sliding_window_size is not None:  # the keys before the query, without its own
            self.sliding_window = self.sliding_window_size + 1
        if "sliding_attention" in self.layer_types:
            kv_heads = 2 * self.num_key_value_heads
            check_multiple("num_attention_heads", self.num_attention_heads, "2 * num_key_value_heads", kv_heads)
        check_top_k(self.num_experts_per_tok, self.n_routed_experts)


def mimo_attention(c: MiMoV2FlashConfig, kind: str) -> Module:
    heads, hidden, bias = c.num_attention_heads, c.hidden_size, c.attention_bias
    slides = kind == "sliding_attention"
    kv_heads = c.num_key_value_heads * (2 if slides else 1)
    return Module(
        q_proj=Linear(hidden, heads * c.head_dim, bias),
        k_proj=Linear(hidden, kv_heads * c.head_dim, bias),
        v_proj=Linear(hidden, kv_heads * c.v_head_dim, bias),
        sinks=Weight((heads,)) if slides else None,
        core=Attention(heads, c.head_dim, c.v_head_dim, c.span(kind)),
        o_proj=Linear(heads * c.v_head_dim, hidden),
    ).reading("q_proj", "k_proj", "v_proj")


def mimo_layer(c: MiMoV2FlashConfig, kind: tuple[str, str]) -> Module:
    attends, mlp = kind
    self_attn = mimo_attention(c, attends)
    return decoder_layer(c.hidden_size, self_attn=self_attn, mlp=dense_or_sparse(c, mlp, c.n_routed_experts, None))


@register("mimo_v2_flash", MiMoV2FlashConfig)
def mimo_v2_flash(c: MiMoV2FlashConfig) -> Module:
    kinds = zip(c.layer_types, c.mlp_layer_types, strict=True)
    return causal_lm(c, each(partial(mimo_layer, c), kinds))


@register_mtp("mimo_v2_flash")
def mimo_v2_flash_mtp(c: MiMoV2FlashConfig) -> Module:
    """Light depths: a windowed layer with a dense MLP."""
    return next_token_depth(c.hidden_size, mimo_layer(c, ("sliding_attention", "dense")))
