"""Qwen3.5, dense and MoE, alone or with a vision tower: Qwen3-Next's layers, each projection on its own."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.blocks import (
    Multimodal,
    backbone,
    causal_lm,
    check_top_k,
    decoder_layer,
    each,
    mlp,
    multimodal_lm,
    shared_moe,
)
from flopcalc.architectures.qwen3_next import DeltaNet, DeltaNetDecoder, gated_attention, gated_delta_net
from flopcalc.architectures.towers import Qwen3VisionConfig, qwen3_tower
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.mtp import next_token_depth, register_mtp
from flopcalc.tree import Layers, Linear, Module


class Qwen3_5TextConfig(DeltaNetDecoder):
    vocab_size: Size = 248320
    hidden_size: Size = 4096
    intermediate_size: Size = 12288
    num_hidden_layers: Count = 32
    num_key_value_heads: Size = 4


class Qwen3_5MoeTextConfig(DeltaNetDecoder):
    vocab_size: Size = 248320
    num_hidden_layers: Count = 40
    moe_intermediate_size: Size = 512
    shared_expert_intermediate_size: Size = 512
    num_experts: Size = 256
    num_experts_per_tok: Size = 8

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_experts)


class Qwen3_5Config(Multimodal):
    text_config: Qwen3_5TextConfig = Field(default_factory=Qwen3_5TextConfig)
    vision_config: Qwen3VisionConfig = Field(default_factory=Qwen3VisionConfig)


class Qwen3_5MoeConfig(Multimodal):
    text_config: Qwen3_5MoeTextConfig = Field(default_factory=Qwen3_5MoeTextConfig)
    vision_config: Qwen3VisionConfig = Field(default_factory=Qwen3VisionConfig)


def delta_net(c: DeltaNet) -> Module:
    """The gated delta rule with a matrix for each of its inputs."""
    heads = c.linear_num_value_heads
    return gated_delta_net(
        c,
        in_proj_qkv=Linear(c.hidden_size, 2 * c.key_width + c.value_width),
        in_proj_z=Linear(c.hidden_size, c.value_width),
        in_proj_b=Linear(c.hidden_size, heads),
        in_proj_a=Linear(c.hidden_size, heads),
    )


def layers(c: DeltaNetDecoder, feed_forward: Module) -> Layers:
    """The decoder layers; all have the same MLP."""

    def layer(kind: str) -> Module:
        return decoder_layer(
            c.hidden_size,
            linear_attn=delta_net(c) if kind == "linear_attention" else None,
            self_attn=gated_attention(c) if kind == "full_attention" else None,
            mlp=feed_forward,
        )

    return each(layer, c.layer_types)


def dense(c: Qwen3_5TextConfig) -> Layers:
    return layers(c, mlp(c.hidden_size, c.intermediate_size))


def sparse(c: Qwen3_5MoeTextConfig) -> Layers:
    return layers(c, shared_moe(c))


@register("qwen3_5_text", Qwen3_5TextConfig)
def qwen3_5_text(c: Qwen3_5TextConfig) -> Module:
    return causal_lm(c, dense(c))


@register("qwen3_5_moe_text", Qwen3_5MoeTextConfig)
def qwen3_5_moe_text(c: Qwen3_5MoeTextConfig) -> Module:
    return causal_lm(c, sparse(c))


def depth(c: DeltaNetDecoder, feed_forward: Module) -> Module:
    """A depth of multi-token prediction, which attends."""
    return next_token_depth(c.hidden_size, decoder_layer(c.hidden_size, self_attn=gated_attention(c), mlp=feed_forward))


@register_mtp("qwen3_5_text")
def qwen3_5_text_mtp(c: Qwen3_5TextConfig) -> Module:
    return depth(c, mlp(c.hidden_size, c.intermediate_size))


@register_mtp("qwen3_5_moe_text")
def qwen3_5_moe_text_mtp(c: Qwen3_5MoeTextConfig) -> Module:
    return depth(c, shared_moe(c))


@register_mtp("qwen3_5")
def qwen3_5_mtp(c: Qwen3_5Config) -> Module:
    return qwen3_5_text_mtp(c.text_config)


@register_mtp("qwen3_5_moe")
def qwen3_5_moe_mtp(c: Qwen3_5MoeConfig) -> Module:
    return qwen3_5_moe_text_mtp(c.text_config)


@register("qwen3_5", Qwen3_5Config)
def qwen3_5(c: Qwen3_5Config) -> Module:
    return multimodal_lm(c, backbone(c.text_config, dense(c.text_config)), visual=qwen3_tower(c.vision_config))


@register("qwen3_5_moe", Qwen3_5MoeConfig)
def qwen3_5_moe(c: Qwen3_5MoeConfig) -> Module:
    return multimodal_lm(c, backbone(c.text_config, sparse(c.text_config)), visual=qwen3_tower(c.vision_config))
