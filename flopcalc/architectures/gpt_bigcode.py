"""GPT-BigCode (StarCoder): GPT-2 with one key and value head."""

from __future__ import annotations

from flopcalc.architectures.blocks import plain_mlp
from flopcalc.architectures.gpt2 import DecoderOnlyConfig, gpt, gpt_block
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module


class GptBigCodeConfig(DecoderOnlyConfig):
    multi_query: bool = True


@register("gpt_bigcode", GptBigCodeConfig)
def gpt_bigcode(c: GptBigCodeConfig) -> Module:
    hidden = c.n_embd
    kv_dim = hidden // c.n_head if c.multi_query else hidden
    block = gpt_block(
        c,
        Linear(hidden, hidden + 2 * kv_dim, bias=True),
        Linear(hidden, hidden, bias=True),
        plain_mlp(hidden, c.width(), bias=True, names=("c_fc", "c_proj")),
    )
    return gpt(c, block, positions=True)
