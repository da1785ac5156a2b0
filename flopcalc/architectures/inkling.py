"""Inkling: windows with heads of their own, positions as biases that each query mixes from learned
profiles, short convolutions behind keys, values, attention and MLP, and a router that scores the shared
experts too. Its head is never tied."""

from __future__ import annotations

from typing import Any

from flopcalc.architectures.blocks import check_multiple, check_top_k, check_types, each, experts, lm_head, mlp, router
from flopcalc.config import Count, Schema, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.spans import Full, Span, Window
from flopcalc.tree import Attention, Conv1d, Embedding, Linear, Module, Norm, Stream, Weight


class InklingHeads(Schema):
    """Fields of attention in windows (`hybrid_sliding` layers) and beside them."""

    vocab_size: Size = 201024
    hidden_size: Size = 6144
    num_hidden_layers: Count = 66
    num_attention_heads: Size = 64
    num_key_value_heads: Size = 8
    head_dim: Size = 128
    swa_num_attention_heads: Size = 64
    swa_num_key_value_heads: Size = 16
    swa_head_dim: Size = 128
    sliding_window_size: Size = aliases("sliding_window", "sliding_window_size", default=512)
    d_rel: Size = 16
    rel_extent: Size = 1024
    conv_kernel_size: Size = aliases("sconv_kernel_size", "conv_kernel_size", default=4)
    layer_types: list[str] | None = None
    num_experts_per_tok: Size = 6

    def derive(self) -> None:
        if self.layer_types is None:
            self.layer_types = self.default_layer_types()
        check_types("layer_types", self.layer_types, self.num_hidden_layers, ("hybrid", "hybrid_sliding"))
        check_multiple("num_attention_heads", self.num_attention_heads, "num_key_value_heads", self.num_key_value_heads)
        heads, kv_heads = self.swa_num_attention_heads, self.swa_num_key_value_heads
        check_multiple("swa_num_attention_heads", heads, "swa_num_key_value_heads", kv_heads)

    def default_layer_types(self) -> list[str]:
        return ["hybrid_sliding" if (i + 1) % 6 else "hybrid" for i in range(self.num_hidden_layers)]

    def sizes(self, kind: str) -> tuple[int, int, int, int, Span]:
        """Heads, key-value heads, head width, reach of the position bias and span of a layer of this type."""
        if kind == "hybrid":
            return self.num_attention_heads, self.num_key_value_heads, self.head_dim, self.rel_extent, Full()
        window = self.sliding_window_size
        return self.swa_num_attention_heads, self.swa_num_key_value_heads, self.swa_head_dim, window, Window(window)


class InklingTextConfig(InklingHeads):
    intermediate_size: Size = 24576
    moe_intermediate_size: Size = 3072
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=256)
    n_shared_experts: Size = 2
    mlp_layer_types: list[str] | None = None
    local_layer_ids: list[int] | None = None
    dense_mlp_idx: Count = legacy(0)
    dense_intermediate_size: Size | None = legacy()

    def default_layer_types(self) -> list[str]:
        if self.local_layer_ids is None:
            return super().default_layer_types()
        return ["hybrid_sliding" if i in self.local_layer_ids else "hybrid" for i in range(self.num_hidden_layers)]

    def derive(self) -> None:
        super().derive()
        if self.mlp_layer_types is None:
            self.mlp_layer_types = [
                "dense" if i < self.dense_mlp_idx else "sparse" for i in range(self.num_hidden_layers)
            ]
        check_types("mlp_layer_types", self.mlp_layer_types, self.num_hidden_layers, ("dense", "sparse"))
        if self.dense_intermediate_size is not None:  # intermediate_size is then the experts' width
            self.moe_intermediate_size, self.intermediate_size = self.intermediate_size, self.dense_intermediate_size
            self.dense_intermediate_size = None
        check_top_k(self.num_experts_per_tok, self.n_routed_experts)


def short_convolution(channels: int, taps: int) -> Module:
    return Module(conv1d=Conv1d(channels, taps))


def profiles(d_rel: int, reach: int, heads: int) -> Module:
    """The bank of position biases, which every head of a token multiplies by its own mix."""
    return Module(proj=Weight((d_rel, reach), "linear", transposed=True)).on(Stream(rows=heads))


def normed_embedding(c: Any) -> Module:
    return Module(**{"": Embedding(c.vocab_size, c.hidden_size)}, embed_norm=Norm(c.hidden_size))


@register("inkling_text", InklingTextConfig)
def inkling_text(c: InklingTextConfig) -> Module:
    hidden, width, taps, shared = c.hidden_size, c.moe_intermediate_size, c.conv_kernel_size, c.n_shared_experts
    sparse_mlp = Module(
        gate=router(hidden, c.n_routed_experts + shared, global_scale=Weight((1,))),
        experts=experts(hidden, width, c.n_routed_experts, c.num_experts_per_tok),
        shared_experts=Module(
            gate_proj=Weight((shared, width, hidden), "linear"),
            up_proj=Weight((shared, width, hidden), "linear"),
            down_proj=Weight((shared, hidden, width), "linear"),
        ).reading("gate_proj", "up_proj"),
    ).reading("gate", "experts", "shared_experts")
    dense_mlp = mlp(hidden, c.intermediate_size).holding(global_scale=Weight((1,)))

    def layer(kind: tuple[str, str]) -> Module:
        attends, mlp_type = kind
        heads, kv_heads, dim, reach, span = c.sizes(attends)
        return Module(
            input_layernorm=Norm(hidden),
            self_attn=Module(
                q_proj=Linear(hidden, heads * dim),
                k_proj=Linear(hidden, kv_heads * dim),
                v_proj=Linear(hidden, kv_heads * dim),
                r_proj=Linear(hidden, heads * c.d_rel),
                k_sconv=short_convolution(kv_heads * dim, taps),
                v_sconv=short_convolution(kv_heads * dim, taps),
                q_norm=Norm(dim, "head_norm", heads),
                k_norm=Norm(dim, "head_norm", kv_heads),
                rel_logits_proj=profiles(c.d_rel, reach, heads),
                core=Attention(heads, dim, dim, span),
                o_proj=Linear(heads * dim, hidden),
            ).reading(
                "q_proj", "k_proj", "v_proj", "r_proj",
                k_sconv="k_proj", v_sconv="v_proj", q_norm="q_proj", k_norm="k_sconv", rel_logits_proj="r_proj",
            ),
            attn_sconv=short_convolution(hidden, taps),
            post_attention_layernorm=Norm(hidden),
            mlp=sparse_mlp if mlp_type == "sparse" else dense_mlp,
            mlp_sconv=short_convolution(hidden, taps),
        )  # fmt: skip

    layers = each(layer, zip(c.layer_types or [], c.mlp_layer_types or [], strict=True))
    model = Module(embed_tokens=normed_embedding(c), layers=layers, norm=Norm(hidden, "final_norm"))
    return Module(model=model, lm_head=lm_head(c, None))
