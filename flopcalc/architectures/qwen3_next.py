"""Qwen3-Next: three layers of gated delta rule to one of gated attention, many small experts."""

from __future__ import annotations

from typing import ClassVar

from flopcalc.architectures.blocks import (
    LEGACY_LAYER_TYPES,
    attention,
    causal_lm,
    check_multiple,
    check_top_k,
    check_types,
    decoder_layer,
    each,
    mlp,
    shared_moe,
)
from flopcalc.config import Count, Schema, Size, legacy
from flopcalc.estimators import register
from flopcalc.mtp import next_token_depth, register_mtp
from flopcalc.spans import Full
from flopcalc.tree import Conv1d, DeltaRule, Linear, Module, Norm, Weight


class DeltaNet(Schema):
    """The heads of a gated delta rule."""

    hidden_size: Size = 2048
    linear_conv_kernel_dim: Size = 4
    linear_key_head_dim: Size = 128
    linear_value_head_dim: Size = 128
    linear_num_key_heads: Size = 16
    linear_num_value_heads: Size = 32

    def derive(self) -> None:
        super().derive()
        value_heads, key_heads = self.linear_num_value_heads, self.linear_num_key_heads
        check_multiple("linear_num_value_heads", value_heads, "linear_num_key_heads", key_heads)

    @property
    def key_width(self) -> int:
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_width(self) -> int:
        return self.linear_num_value_heads * self.linear_value_head_dim


class DeltaNetDecoder(DeltaNet):
    """A decoder whose layers run the gated delta rule, save for every fourth, which attends."""

    attending_type: ClassVar[str] = "full_attention"

    vocab_size: Size = 151936
    num_hidden_layers: Count = 48
    num_attention_heads: Size = 16
    num_key_value_heads: Size = 2
    head_dim: Size = 256
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    layer_types: list[str] | None = None
    full_attention_interval: Size = legacy(4)

    def derive(self) -> None:
        super().derive()
        if self.layer_types is None:
            interval, layers = self.full_attention_interval, range(1, self.num_hidden_layers + 1)
            self.layer_types = ["linear_attention" if i % interval else self.attending_type for i in layers]
        self.layer_types = [LEGACY_LAYER_TYPES.get(kind, kind) for kind in self.layer_types]
        check_types("layer_types", self.layer_types, self.num_hidden_layers, ("linear_attention", self.attending_type))


class Qwen3NextConfig(DeltaNetDecoder):
    intermediate_size: Size = 5632
    decoder_sparse_step: Size = 1
    mlp_only_layers: list[int] | None = None
    moe_intermediate_size: Size = 512
    shared_expert_intermediate_size: Size = 512
    num_experts: Count = 512
    num_experts_per_tok: Size = 10

    def derive(self) -> None:
        super().derive()
        self.mlp_only_layers = self.mlp_only_layers or []
        check_top_k(self.num_experts_per_tok, self.num_experts)

    def is_sparse(self, layer: int) -> bool:
        """Whether this layer (from 0) has experts."""
        return layer not in self.mlp_only_layers and (layer + 1) % self.decoder_sparse_step == 0


def gated_delta_net(c: DeltaNet, **projections: Linear) -> Module:
    """The delta rule over `linear_num_value_heads` states; each key head serves several value heads.
    `projections`, that of query, key and value first, also emit the output gate z and, per head, the
    rate b and the decay a."""
    heads = c.linear_num_value_heads
    return Module(
        **projections,
        conv1d=Conv1d(2 * c.key_width + c.value_width, c.linear_conv_kernel_dim),
        dt_bias=Weight((heads,)),
        A_log=Weight((heads,)),
        recurrence=DeltaRule(heads, c.linear_key_head_dim, c.linear_value_head_dim),
        norm=Norm(c.linear_value_head_dim),
        out_proj=Linear(c.value_width, c.hidden_size),
    ).reading(*projections, conv1d=next(iter(projections)))


def gated_attention(c: DeltaNetDecoder) -> Module:
    """Full attention with query and key norms and an output gate."""
    return attention(c, Full(), bias=c.attention_bias, qk_norm=True, gate=True)


@register_mtp("qwen3_next")
def qwen3_next_mtp(c: Qwen3NextConfig) -> Module:
    layer = decoder_layer(c.hidden_size, self_attn=gated_attention(c), mlp=shared_moe(c))
    return next_token_depth(c.hidden_size, layer)


@register("qwen3_next", Qwen3NextConfig)
def qwen3_next(c: Qwen3NextConfig) -> Module:
    hidden = c.hidden_size

    def layer(kind: tuple[str, bool]) -> Module:
        attends, sparse = kind
        linear = gated_delta_net(
            c,
            in_proj_qkvz=Linear(hidden, 2 * c.key_width + 2 * c.value_width),
            in_proj_ba=Linear(hidden, 2 * c.linear_num_value_heads),
        )
        return decoder_layer(
            hidden,
            linear_attn=linear if attends == "linear_attention" else None,
            self_attn=gated_attention(c) if attends == "full_attention" else None,
            mlp=shared_moe(c) if sparse else mlp(hidden, c.intermediate_size),
        )

    sparse = [c.num_experts > 0 and c.is_sparse(i) for i in range(c.num_hidden_layers)]
    return causal_lm(c, each(layer, zip(c.layer_types, sparse, strict=True)))
