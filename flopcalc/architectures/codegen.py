"""CodeGen: GPT-J with query, key and value in one projection."""

from __future__ import annotations

from flopcalc.architectures.gpt2 import gpt
from flopcalc.architectures.gptj import GptJConfig, parallel_block
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module


@register("codegen", GptJConfig)
def codegen(c: GptJConfig) -> Module:
    hidden = c.n_embd
    attn = Module(qkv_proj=Linear(hidden, 3 * hidden), core=c.attention(), out_proj=Linear(hidden, hidden))
    return gpt(c, parallel_block(c, attn), positions=False, head_bias=True)
