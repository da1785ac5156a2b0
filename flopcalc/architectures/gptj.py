"""GPT-J: attention without biases and an MLP without gate side by side under one LayerNorm, a bias on the head."""

from __future__ import annotations

from flopcalc.architectures.blocks import plain_mlp
from flopcalc.architectures.gpt2 import GptConfig, gpt
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.tree import LayerNorm, Linear, Module


class GptJConfig(GptConfig):
    vocab_size: Size = 50400
    n_positions: Size = aliases("max_position_embeddings", "n_positions", default=2048)
    n_embd: Size = aliases("hidden_size", "n_embd", default=4096)
    n_layer: Count = aliases("num_hidden_layers", "n_layer", default=28)
    n_head: Size = aliases("num_attention_heads", "n_head", default=16)
    tie_word_embeddings: bool = False


def parallel_block(c: GptConfig, attn: Module) -> Module:
    """Attention and MLP under one norm."""
    mlp = plain_mlp(c.n_embd, c.width(), bias=True, names=("fc_in", "fc_out"))
    return Module(ln_1=LayerNorm(c.n_embd), attn=attn, mlp=mlp).reading(mlp="ln_1")


@register("gptj", GptJConfig)
def gptj(c: GptJConfig) -> Module:
    square = Linear(c.n_embd, c.n_embd)
    attn = Module(q_proj=square, k_proj=square, v_proj=square, core=c.attention(), out_proj=square)
    return gpt(c, parallel_block(c, attn.reading("q_proj", "k_proj", "v_proj")), positions=False, head_bias=True)
