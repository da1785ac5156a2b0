"""The first Qwen: queries, keys and values in one matrix with a bias, a gated MLP whose
`intermediate_size` counts gate and up. The structure is that of the published `modeling_qwen.py`."""

from __future__ import annotations

from flopcalc.architectures.blocks import Stack, lm_head
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, Layers, Linear, Module, Norm


class QwenConfig(Stack):
    vocab_size: Size = 151936
    intermediate_size: Size = 22016
    num_hidden_layers: Count = 32
    head_dim: Size = aliases("kv_channels", "head_dim", default=128)
    no_bias: bool = True


@register("qwen", QwenConfig)
def qwen(c: QwenConfig) -> Module:
    hidden, width, bias = c.hidden_size, c.intermediate_size // 2, not c.no_bias
    inner = c.num_attention_heads * c.head_dim
    layer = Module(
        ln_1=Norm(hidden),
        attn=Module(
            c_attn=Linear(hidden, 3 * inner, bias=True),
            core=Attention(c.num_attention_heads, c.head_dim, c.head_dim, Full()),
            c_proj=Linear(inner, hidden, bias),
        ),
        ln_2=Norm(hidden),
        mlp=Module(
            w1=Linear(hidden, width, bias), w2=Linear(hidden, width, bias), c_proj=Linear(width, hidden, bias)
        ).reading("w1", "w2"),
    )
    transformer = Module(
        wte=Embedding(c.vocab_size, hidden),
        h=Layers([layer] * c.num_hidden_layers),
        ln_f=Norm(hidden, "final_norm"),
    )
    return Module(
        transformer=transformer, lm_head=lm_head(c, "transformer.wte.weight" if c.tie_word_embeddings else None)
    )
