"""GPT-Neo: learned positions, full and windowed attention in turn."""

from __future__ import annotations

from typing import Any

from flopcalc.architectures.blocks import check_multiple, check_types, each, plain_mlp
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full, Window
from flopcalc.tree import Attention, Embedding, LayerNorm, Linear, Module


class GptNeoConfig(Schema):
    vocab_size: Size = 50257
    max_position_embeddings: Size = 2048
    hidden_size: Size = 2048
    num_layers: Count = aliases("num_hidden_layers", "num_layers", default=24)
    num_heads: Size = aliases("num_attention_heads", "num_heads", default=16)
    intermediate_size: Size | None = None
    window_size: Size = 256
    attention_types: list[Any] | None = None
    attention_layers: list[str] | None = None
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        if self.attention_types is None:
            self.attention_types = [[["global", "local"], 12]]
        try:  # [[kinds, times], ...]
            self.attention_layers = [kind for kinds, times in self.attention_types for kind in list(kinds) * times]
        except (TypeError, ValueError):
            expected = 'pairs such as [["global", "local"], 12]'
            raise ValueError(f"attention_types: found {self.attention_types!r}, expected {expected}") from None
        check_types("attention_types", self.attention_layers, self.num_layers, ("global", "local"))
        check_multiple("hidden_size", self.hidden_size, "num_heads", self.num_heads)


@register("gpt_neo", GptNeoConfig)
def gpt_neo(c: GptNeoConfig) -> Module:
    hidden, dim = c.hidden_size, c.hidden_size // c.num_heads
    square = Linear(hidden, hidden)

    def block(kind: str) -> Module:
        span = Window(c.window_size) if kind == "local" else Full()
        attention = Module(
            q_proj=square,
            k_proj=square,
            v_proj=square,
            core=Attention(c.num_heads, dim, dim, span),
            out_proj=Linear(hidden, hidden, bias=True),
        ).reading("q_proj", "k_proj", "v_proj")
        return Module(
            ln_1=LayerNorm(hidden),
            attn=Module(attention=attention),
            ln_2=LayerNorm(hidden),
            mlp=plain_mlp(hidden, c.intermediate_size or 4 * hidden, bias=True, names=("c_fc", "c_proj")),
        )

    tied_to = "transformer.wte.weight" if c.tie_word_embeddings else None
    return Module(
        transformer=Module(
            wte=Embedding(c.vocab_size, hidden),
            wpe=Embedding(c.max_position_embeddings, hidden, kind="lookup"),
            h=each(block, c.attention_layers),
            ln_f=LayerNorm(hidden),
        ),
        lm_head=Linear(hidden, c.vocab_size, kind="head", tied_to=tied_to),
    )
