"""RecurrentGemma (Griffin): two layers of gated linear recurrence to one of windowed attention."""

from __future__ import annotations

from flopcalc.architectures.blocks import attention, check_multiple, check_types, each, lm_head, mlp
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Window
from flopcalc.tree import ChannelScan, Conv1d, Embedding, Linear, Module, Norm, Weight


class RecurrentGemmaConfig(Schema):
    vocab_size: Size = 256000
    hidden_size: Size = 2560
    intermediate_size: Size = 3 * 2560
    num_hidden_layers: Count = 26
    num_attention_heads: Size = 10
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    lru_width: Size | None = None
    attention_window_size: Size = aliases("sliding_window", "attention_window_size", default=2048)
    conv1d_width: Size = 4
    block_types: list[str] | None = None
    attention_bias: bool = False
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        if self.lru_width is None:
            self.lru_width = self.hidden_size
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None:
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.block_types is None:
            self.block_types = ["recurrent", "recurrent", "attention"]
        check_types("block_types", self.block_types, None, ("recurrent", "attention"))
        if not self.block_types:
            raise ValueError("block_types: found none, expected 'recurrent' or 'attention' for each layer in turn")
        check_multiple("lru_width", self.lru_width, "num_attention_heads", self.num_attention_heads)

    def kinds(self) -> list[str]:
        return (self.block_types * self.num_hidden_layers)[: self.num_hidden_layers]


def recurrent_block(c: RecurrentGemmaConfig) -> Module:
    """A convolved branch through the RG-LRU, whose gates are block-diagonal matrices, times a gated branch."""
    hidden, width, heads = c.hidden_size, c.lru_width, c.num_attention_heads
    block = width // heads
    return Module(
        linear_y=Linear(hidden, width, bias=True),
        linear_x=Linear(hidden, width, bias=True),
        conv_1d=Conv1d(width, c.conv1d_width, bias=True),
        rg_lru=Module(
            recurrent_param=Weight((width,)),
            input_gate_weight=Weight((heads, block, block), "linear"),
            input_gate_bias=Weight((heads, block), "bias"),
            recurrent_gate_weight=Weight((heads, block, block), "linear"),
            recurrent_gate_bias=Weight((heads, block), "bias"),
            recurrence=ChannelScan(width, 1),
        ),
        linear_out=Linear(width, hidden, bias=True),
    ).reading("linear_y", "linear_x", conv_1d="linear_x", rg_lru="conv_1d")


@register("recurrent_gemma", RecurrentGemmaConfig)
def recurrent_gemma(c: RecurrentGemmaConfig) -> Module:
    attends = attention(c, Window(c.attention_window_size), bias=c.attention_bias, o_bias=True)

    def layer(kind: str) -> Module:
        return Module(
            temporal_pre_norm=Norm(c.hidden_size),
            temporal_block=attends if kind == "attention" else recurrent_block(c),
            channel_pre_norm=Norm(c.hidden_size),
            mlp_block=mlp(c.hidden_size, c.intermediate_size // 2, bias=True),
        )

    return Module(
        model=Module(
            embed_tokens=Embedding(c.vocab_size, c.hidden_size),
            layers=each(layer, c.kinds()),
            final_norm=Norm(c.hidden_size, "final_norm"),
        ),
        lm_head=lm_head(c, "model.embed_tokens.weight" if c.tie_word_embeddings else None),
    )
