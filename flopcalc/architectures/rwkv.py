"""RWKV: recurrences alone. In RWKV-4 each channel decays by itself; in RWKV-5 each head keeps a matrix."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple, each
from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register
from flopcalc.tree import ChannelScan, Embedding, LayerNorm, Linear, LinearAttention, Module, Weight


class RwkvConfig(Schema):
    vocab_size: Size = 50277
    hidden_size: Size = 4096
    num_hidden_layers: Count = 32
    attention_hidden_size: Size | None = None
    intermediate_size: Size | None = None
    tie_word_embeddings: bool = False

    def derive(self) -> None:
        if self.attention_hidden_size is None:
            self.attention_hidden_size = self.hidden_size
        if self.intermediate_size is None:
            self.intermediate_size = self.default_width()

    def default_width(self) -> int:
        """Width of the channel mixing where the config names none."""
        return 4 * self.hidden_size


def mixes(c: RwkvConfig, *names: str) -> dict[str, Weight]:
    """How much of the token before each projection reads."""
    return {f"time_mix_{name}": Weight((1, 1, c.hidden_size)) for name in names}


def rwkv_lm(c: RwkvConfig, attention: Module) -> Module:
    """Blocks of time mixing and channel mixing; the first has a norm more, that of the embedding."""
    hidden, width = c.hidden_size, c.intermediate_size
    feed_forward = Module(
        **mixes(c, "key", "receptance"),
        key=Linear(hidden, width),
        value=Linear(width, hidden),
        receptance=Linear(hidden, hidden),
    ).reading("receptance")

    def block(first: bool) -> Module:
        return Module(
            pre_ln=LayerNorm(hidden) if first else None,
            ln1=LayerNorm(hidden),
            attention=attention,
            ln2=LayerNorm(hidden),
            feed_forward=feed_forward,
        )

    tied_to = "rwkv.embeddings.weight" if c.tie_word_embeddings else None
    return Module(
        rwkv=Module(
            embeddings=Embedding(c.vocab_size, hidden),
            blocks=each(block, [i == 0 for i in range(c.num_hidden_layers)]),
            ln_out=LayerNorm(hidden, kind="final_norm"),
        ),
        head=Linear(hidden, c.vocab_size, kind="head", tied_to=tied_to),
    )


@register("rwkv", RwkvConfig)
def rwkv(c: RwkvConfig) -> Module:
    hidden, inner = c.hidden_size, c.attention_hidden_size
    attention = Module(
        **mixes(c, "key", "value", "receptance"),
        key=Linear(hidden, inner),
        value=Linear(hidden, inner),
        receptance=Linear(hidden, inner),
        time_decay=Weight((inner,)),
        time_first=Weight((inner,)),
        recurrence=ChannelScan(inner, 2),
        output=Linear(inner, hidden),
    )
    return rwkv_lm(c, attention)


class Rwkv5Config(RwkvConfig):
    vocab_size: Size = 65536
    hidden_size: Size = 2560
    head_size: Size = 64

    def derive(self) -> None:
        super().derive()
        check_multiple("attention_hidden_size", self.attention_hidden_size, "head_size", self.head_size)

    def default_width(self) -> int:
        return int(3.5 * self.hidden_size) // 32 * 32


@register("rwkv5", Rwkv5Config)
def rwkv5(c: Rwkv5Config) -> Module:
    """As the published modelling code of RWKV-5 "World" (version 5_2) builds it."""
    hidden, inner, dim = c.hidden_size, c.attention_hidden_size, c.head_size
    heads = inner // dim
    attention = Module(
        **mixes(c, "key", "value", "receptance", "gate"),
        key=Linear(hidden, inner),
        value=Linear(hidden, inner),
        receptance=Linear(hidden, inner),
        gate=Linear(hidden, inner),
        time_decay=Weight((heads, dim)),
        time_faaaa=Weight((heads, dim)),
        recurrence=LinearAttention(heads, dim, dim),
        ln_x=LayerNorm(inner),
        output=Linear(inner, hidden),
    )
    return rwkv_lm(c, attention)
