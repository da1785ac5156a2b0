"""Nemotron's pruned Llamas (DeciLM): every layer has an attention and an MLP of its own size, one matrix in
the place of either, or none. The structure is that of the published `modeling_decilm.py`."""

from __future__ import annotations

from typing import NamedTuple

from flopcalc.architectures.blocks import attention, causal_lm, check_multiple, each, mlp, window
from flopcalc.architectures.llama import LlamaConfig
from flopcalc.config import Schema, Size
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module, Norm


class AttentionBlock(Schema):
    n_heads_in_group: Size | None = None
    no_op: bool = False
    replace_with_linear: bool = False
    window_length: Size | None = None
    num_sink_tokens: Size | None = None
    sparsify: list[str] | None = None


class FfnBlock(Schema):
    ffn_mult: float | None = None
    no_op: bool = False
    replace_with_linear: bool = False
    sparsify: list[str] | None = None


class Block(Schema):
    attention: AttentionBlock
    ffn: FfnBlock


class NemotronNasConfig(LlamaConfig):
    intermediate_size: Size | None = None
    block_configs: list[Block]

    def derive(self) -> None:
        super().derive()
        if len(self.block_configs) != self.num_hidden_layers:
            found = len(self.block_configs)
            raise ValueError(f"block_configs: found {found} entries, expected {self.num_hidden_layers}, one a layer")
        for block in self.block_configs:
            self._check(block)

    def _check(self, block: Block) -> None:
        if block.attention.num_sink_tokens is not None:
            found = block.attention.num_sink_tokens
            raise ValueError(f"block_configs: attention.num_sink_tokens: found {found}, expected none")
        if not (block.attention.no_op or block.attention.replace_with_linear):
            if block.attention.n_heads_in_group is None:
                raise ValueError("block_configs: attention.n_heads_in_group: found None, expected the heads of a group")
            check_multiple(
                "num_attention_heads",
                self.num_attention_heads,
                "attention.n_heads_in_group",
                block.attention.n_heads_in_group,
            )
        if not (block.ffn.no_op or block.ffn.replace_with_linear) and block.ffn.ffn_mult is None:
            raise ValueError("block_configs: ffn.ffn_mult: found None, expected the MLP's width in hidden sizes")

    def width(self, ffn_mult: float) -> int:
        """The width of an MLP: two thirds of so many hidden sizes, rounded up to whole 256."""
        return -(-int(2 * ffn_mult * self.hidden_size / 3) // 256) * 256


class _Grouped(NamedTuple):
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int


@register("nemotron-nas", NemotronNasConfig)
def nemotron_nas(c: NemotronNasConfig) -> Module:
    hidden, heads = c.hidden_size, c.num_attention_heads

    def layer(kind: tuple[bool, bool, int | None, int | None, bool, bool, float | None]) -> Module:
        attends, attn_linear, group, span, feeds, ffn_linear, ffn_mult = kind
        self_attn = feed_forward = None
        if attends and attn_linear:
            self_attn = Module(linear_attn=Linear(hidden, hidden))
        elif attends and group:
            grouped = _Grouped(hidden, heads, heads // group, c.head_dim or hidden // heads)
            self_attn = attention(grouped, window(span), bias=c.attention_bias)
        if feeds and ffn_linear:
            feed_forward = Module(linear_mlp=Linear(hidden, hidden))
        elif feeds and ffn_mult:
            feed_forward = mlp(hidden, c.width(ffn_mult), bias=c.mlp_bias)
        return Module(
            input_layernorm=Norm(hidden) if attends else None,
            self_attn=self_attn,
            post_attention_layernorm=Norm(hidden) if feeds else None,
            mlp=feed_forward,
        )

    kinds = (
        (
            not block.attention.no_op,
            block.attention.replace_with_linear,
            block.attention.n_heads_in_group,
            block.attention.window_length,
            not block.ffn.no_op,
            block.ffn.replace_with_linear,
            block.ffn.ffn_mult,
        )
        for block in c.block_configs
    )
    return causal_lm(c, each(layer, kinds))
