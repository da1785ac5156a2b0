"""MiniMax: lightning attention, a linear attention with a fixed decay per head, in every other layer,
and experts in all. MiniMax-M1 says by a field of its own which layers attend. MiniMax-M2 has full
attention alone, with norms over all heads at once."""

from __future__ import annotations

from typing import ClassVar

from flopcalc.architectures.blocks import (
    Decoder,
    TypedDecoder,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    each,
    moe,
    window,
)
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Linear, LinearAttention, Module, Norm


class MiniMaxConfig(TypedDecoder):
    known_layer_types: ClassVar[tuple[str, ...]] = ("full_attention", "linear_attention")

    intermediate_size: Size = 14336
    num_key_value_heads: Size | None = 8
    num_local_experts: Size = aliases("num_experts", "num_local_experts", default=8)
    num_experts_per_tok: Size = 2

    def default_layer_types(self) -> list[str]:
        return ["linear_attention" if i % 2 else "full_attention" for i in range(self.num_hidden_layers)]

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_local_experts)


def lightning_attention(hidden: int, heads: int, dim: int) -> Module:
    """Linear attention of `heads` states of dim x dim, with an output gate."""
    return Module(
        qkv_proj=Linear(hidden, 3 * heads * dim),
        core=LinearAttention(heads, dim, dim),
        norm=Norm(heads * dim),
        output_gate=Linear(hidden, heads * dim),
        out_proj=Linear(heads * dim, hidden),
    ).reading("output_gate")


@register("minimax", MiniMaxConfig)
def minimax(c: MiniMaxConfig) -> Module:
    def layer(kind: str) -> Module:
        lightning = kind == "linear_attention"
        return decoder_layer(
            c.hidden_size,
            self_attn=lightning_attention(c.hidden_size, c.num_attention_heads, c.head_dim)
            if lightning
            else attention(c, window(c.sliding_window)),
            mlp=moe(c.hidden_size, c.intermediate_size, c.num_local_experts, c.num_experts_per_tok),
        )

    return causal_lm(c, each(layer, c.layer_types))


class MiniMaxM1Config(MiniMaxConfig):
    attn_type_list: list[int] | None = None
    shared_intermediate_size: Count = 0

    def derive(self) -> None:
        if self.attn_type_list is not None:
            unknown = sorted(set(self.attn_type_list) - {0, 1})
            if unknown:
                raise ValueError(f"attn_type_list: found {unknown[0]}, expected 0 (lightning) or 1 (full attention)")
            self.layer_types = ["full_attention" if full else "linear_attention" for full in self.attn_type_list]
        if self.layer_types is None:
            raise ValueError("attn_type_list: found None, expected 0 (lightning) or 1 (full attention) for each layer")
        if self.shared_intermediate_size:
            raise ValueError(
                f"shared_intermediate_size: found {self.shared_intermediate_size}, expected 0, no such MLP"
            )
        super().derive()


register("minimax_m1", MiniMaxM1Config)(minimax)


class MiniMaxM2Config(Decoder):
    vocab_size: Size = 200064
    hidden_size: Size = 3072
    intermediate_size: Size = 1536
    num_hidden_layers: Count = 62
    num_attention_heads: Size = 48
    num_key_value_heads: Size = 8
    head_dim: Size = 128
    num_local_experts: Size = aliases("num_experts", "num_local_experts", default=256)
    num_experts_per_tok: Size = 8

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_local_experts)


@register("minimax_m2", MiniMaxM2Config)
def minimax_m2(c: MiniMaxM2Config) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), qk_norm="all_heads"),
        mlp=moe(c.hidden_size, c.intermediate_size, c.num_local_experts, c.num_experts_per_tok),
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
