"""LFM2: gated short convolutions in most layers, attention in the others. LFM2-MoE has experts behind its
first layers. LFM3 slides some of its attention, gates it, and norms what each block puts out."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from flopcalc.architectures.blocks import (
    Decoder,
    TypedDecoder,
    attention,
    check_top_k,
    check_types,
    each,
    leading_dense,
    lm_head,
    moe,
)
from flopcalc.config import Count, Size, legacy
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Conv1d, Embedding, Layers, Linear, Module, Norm


class ConvDecoder(Decoder):
    """A decoder some of whose layers are short convolutions of `conv_L_cache` taps."""

    vocab_size: Size = 65536
    num_key_value_heads: Size | None = 8
    tie_word_embeddings: bool = True
    conv_bias: bool = False
    conv_L_cache: Size = 3
    layer_types: list[str] | None = None
    tie_embedding: bool | None = legacy()

    def derive(self) -> None:
        super().derive()
        if self.tie_embedding is not None:
            self.tie_word_embeddings = self.tie_embedding
        if self.layer_types is None:
            raise ValueError("layer_types: found None, expected 'conv' or 'full_attention' for each layer")
        check_types("layer_types", self.layer_types, self.num_hidden_layers, ("conv", "full_attention"))


class Lfm2Config(ConvDecoder):
    hidden_size: Size = 2560
    intermediate_size: Size = 12288
    block_multiple_of: Size = 256
    block_ffn_dim_multiplier: float | None = Field(default=1.0, gt=0, allow_inf_nan=False)
    block_auto_adjust_ff_dim: bool = True
    full_attn_idxs: list[int] | None = None
    block_ff_dim: Size | None = legacy()

    def derive(self) -> None:
        if self.layer_types is None:
            layers = list(range(self.num_hidden_layers))
            self.full_attn_idxs = layers if self.full_attn_idxs is None else self.full_attn_idxs
            self.layer_types = ["full_attention" if i in self.full_attn_idxs else "conv" for i in layers]
        self.intermediate_size = self.block_ff_dim or self.intermediate_size
        super().derive()

    def width(self) -> int:
        """Width of the MLPs: two thirds of the field, rounded up to a multiple."""
        if not self.block_auto_adjust_ff_dim:
            return self.intermediate_size
        width = int(2 * self.intermediate_size / 3)
        if self.block_ffn_dim_multiplier is None:
            return width
        multiple = self.block_multiple_of
        return -(-int(self.block_ffn_dim_multiplier * width) // multiple) * multiple


class Lfm2MoeConfig(ConvDecoder):
    hidden_size: Size = 2048
    intermediate_size: Size = 7168
    moe_intermediate_size: Size = 1792
    num_dense_layers: Count = 2
    num_experts: Size = 32
    num_experts_per_tok: Size = 4

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_experts)


class Lfm3Config(TypedDecoder):
    known_layer_types: ClassVar[tuple[str, ...]] = ("conv", "full_attention", "sliding_attention")

    vocab_size: Size = 128000
    hidden_size: Size = 2048
    intermediate_size: Size = 7680
    num_hidden_layers: Count = 24
    num_attention_heads: Size = 16
    num_key_value_heads: Size = 4
    head_dim: Size = 128
    tie_word_embeddings: bool = True
    conv_bias: bool = False
    conv_L_cache: Size = 7
    sliding_window: Count | None = 256
    use_sandwich_norm: bool = True
    use_attention_gate: bool = True
    attention_bias: bool = False

    def default_layer_types(self) -> list[str]:
        kinds = ["sliding_attention", "conv", "full_attention", "conv"]
        return [kinds[i % 4] if i else "conv" for i in range(self.num_hidden_layers)]


def short_conv(c: Any) -> Module:
    """in_proj emits two gates and what is convolved between them."""
    hidden = c.hidden_size
    return Module(
        in_proj=Linear(hidden, 3 * hidden, c.conv_bias),
        conv=Conv1d(hidden, c.conv_L_cache, c.conv_bias),
        out_proj=Linear(hidden, hidden, c.conv_bias),
    )


def swiglu(hidden: int, width: int) -> Module:
    """A gated MLP under the names w1 (gate), w3 (up) and w2 (down)."""
    return Module(w1=Linear(hidden, width), w3=Linear(hidden, width), w2=Linear(width, hidden)).reading("w1", "w3")


def lfm(c: Any, layers: Layers) -> Module:
    """The skeleton, whose last norm is called embedding_norm."""
    return Module(
        model=Module(
            embed_tokens=Embedding(c.vocab_size, c.hidden_size),
            layers=layers,
            embedding_norm=Norm(c.hidden_size, "final_norm"),
        ),
        lm_head=lm_head(c, "model.embed_tokens.weight" if c.tie_word_embeddings else None),
    )


def lfm2_layer(c: ConvDecoder, kind: str, feed_forward: Module) -> Module:
    attends, dim = kind == "full_attention", c.head_dim
    norms: dict[str, Any] = {
        "q_layernorm": Norm(dim, "head_norm", c.num_attention_heads),
        "k_layernorm": Norm(dim, "head_norm", c.num_key_value_heads),
    }
    return Module(
        operator_norm=Norm(c.hidden_size),
        self_attn=attention(c, Full(), out="out_proj", **norms) if attends else None,
        conv=None if attends else short_conv(c),
        ffn_norm=Norm(c.hidden_size),
        feed_forward=feed_forward,
    )


@register("lfm2", Lfm2Config)
def lfm2(c: Lfm2Config) -> Module:
    mlp = swiglu(c.hidden_size, c.width())
    return lfm(c, each(lambda kind: lfm2_layer(c, kind, mlp), c.layer_types))


@register("lfm2_moe", Lfm2MoeConfig)
def lfm2_moe(c: Lfm2MoeConfig) -> Module:
    routed = moe(c.hidden_size, c.moe_intermediate_size, c.num_experts, c.num_experts_per_tok)
    dense = swiglu(c.hidden_size, c.intermediate_size)
    kinds = zip(c.layer_types, leading_dense(c.num_hidden_layers, c.num_dense_layers), strict=True)
    return lfm(c, each(lambda kind: lfm2_layer(c, kind[0], dense if kind[1] == "dense" else routed), kinds))


@register("lfm3", Lfm3Config)
def lfm3(c: Lfm3Config) -> Module:
    def layer(kind: str) -> Module:
        gate = {"g_proj": Linear(c.hidden_size, c.num_attention_heads, kind="output_gate")}
        after_core = gate if c.use_attention_gate else None
        self_attn = attention(c, c.span(kind), bias=c.attention_bias, qk_norm=True, after_core=after_core)
        return Module(
            operator_norm=Norm(c.hidden_size),
            self_attn=None if kind == "conv" else self_attn.reading("g_proj"),
            conv=short_conv(c) if kind == "conv" else None,
            post_operator_norm=Norm(c.hidden_size) if c.use_sandwich_norm else None,
            ffn_norm=Norm(c.hidden_size),
            feed_forward=swiglu(c.hidden_size, c.intermediate_size),
            post_ffn_norm=Norm(c.hidden_size) if c.use_sandwich_norm else None,
        )

    return lfm(c, each(layer, c.layer_types))
