"""ZAYA: compressed convolutional attention, whose queries and keys pass two short convolutions and half of
whose values come from the token before; one expert a token, which a small MLP picks. A token may skip the
experts: transformers computes one for it all the same, with weight zero."""

from __future__ import annotations

from typing import ClassVar

from flopcalc.architectures.blocks import causal_lm, check_multiple, check_types, each, experts
from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import Full, Window
from flopcalc.tree import Attention, Conv, Conv1d, Linear, Module, Norm, Stream, Weight


class ZayaConfig(Schema):
    known_layer_types: ClassVar[tuple[str, ...]] = ("hybrid", "hybrid_sliding")

    vocab_size: Size = 262272
    hidden_size: Size = 2048
    num_hidden_layers: Count = 40
    num_attention_heads: Size = 8
    num_key_value_heads: Size = 2
    head_dim: Size = 128
    attention_bias: bool = False
    lm_head_bias: bool = False
    sliding_window: Size | None = None
    moe_intermediate_size: Size = 2048
    num_experts: Size = 16
    num_experts_per_tok: Size = 1
    router_hidden_size: Size = 256
    cca_time0: Size = 2
    cca_time1: Size = 2
    layer_types: list[str] | None = None
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        if self.layer_types is None:
            self.layer_types = ["hybrid"] * self.num_hidden_layers
        check_types("layer_types", self.layer_types, self.num_hidden_layers, self.known_layer_types)
        check_multiple("num_attention_heads", self.num_attention_heads, "num_key_value_heads", self.num_key_value_heads)
        if self.num_experts_per_tok != 1:
            raise ValueError(f"num_experts_per_tok: found {self.num_experts_per_tok}, expected 1")
        if "hybrid_sliding" in self.layer_types and self.sliding_window is None:
            raise ValueError("sliding_window: found None, expected the window of the hybrid_sliding layers")


def convolutional_attention(c: ZayaConfig, kind: str) -> Module:
    """The second convolution mixes the channels of a head. The first token's delayed value is that of a zero
    vector, which v_proj_delayed projects beside the document."""
    hidden, heads, kv_heads, dim, bias = (
        c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.attention_bias
    )  # fmt: skip
    channels, half = (heads + kv_heads) * dim, kv_heads * dim // 2
    delayed = Module(**{"": Linear(hidden, half, bias)}).on(Stream(extra=1))
    projections = Module(
        q_proj=Linear(hidden, heads * dim, bias),
        k_proj=Linear(hidden, kv_heads * dim, bias),
        conv_qk_depthwise=Conv1d(channels, c.cca_time0, bias=True),
        conv_qk_grouped=Conv(dim, channels, (c.cca_time1,), bias=True),
        v_proj_current=Linear(hidden, half, bias),
        v_proj_delayed=delayed,
    ).reading("q_proj", "k_proj", "v_proj_current", "v_proj_delayed")
    return Module(
        qkv_proj=projections,
        qk_norm=Module(temp=Weight((kv_heads,))),
        core=Attention(heads, dim, dim, Window(c.sliding_window) if kind == "hybrid_sliding" else Full()),
        o_proj=Linear(heads * dim, hidden, bias),
    )


def router(c: ZayaConfig, first: bool) -> Module:
    """An MLP, to whose input every layer but the first adds what the layer before had; one class skips."""
    hidden, width = c.hidden_size, c.router_hidden_size
    return Module(
        down_proj=Linear(hidden, width, bias=True, kind="router"),
        router_states_scale=None if first else Weight((width,)),
        router_mlp=Module(
            norm=Norm(width),
            fc1=Linear(width, width, bias=True, kind="router"),
            fc2=Linear(width, width, bias=True, kind="router"),
            out_proj=Linear(width, c.num_experts + 1, kind="router"),
        ),
    )


def scaled(hidden: int, *names: str) -> dict[str, Weight]:
    """A scale and a bias of each residual."""
    return {f"{name}_{part}": Weight((hidden,)) for name in names for part in ("scale", "bias")}


@register("zaya", ZayaConfig)
def zaya(c: ZayaConfig) -> Module:
    hidden = c.hidden_size
    routed = experts(hidden, c.moe_intermediate_size, c.num_experts, c.num_experts_per_tok)

    def layer(kind: tuple[str, bool]) -> Module:
        return Module(
            input_layernorm=Norm(hidden),
            self_attn=convolutional_attention(c, kind[0]),
            post_attention_residual_scale=Module(**scaled(hidden, "hidden_states", "residual")),
            post_attention_layernorm=Norm(hidden),
            mlp=Module(gate=router(c, kind[1]), experts=routed).reading("gate", "experts"),
            post_mlp_residual_scale=Module(**scaled(hidden, "hidden_states", "residual")),
        )

    layers = each(layer, [(kind, i == 0) for i, kind in enumerate(c.layer_types)])
    return causal_lm(c, layers, head_bias=c.lm_head_bias, **scaled(hidden, "input_hidden_states"))
