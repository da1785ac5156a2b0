"""The first GPT: GPT-2 with norms behind attention and MLP, and none at the end."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, LayerNorm, Layers, Linear, Module


class OpenAIGPTConfig(Schema):
    vocab_size: Size = 40478
    n_positions: Size = aliases("max_position_embeddings", "n_positions", default=512)
    n_embd: Size = aliases("hidden_size", "n_embd", default=768)
    n_layer: Count = aliases("num_hidden_layers", "n_layer", default=12)
    n_head: Size = aliases("num_attention_heads", "n_head", default=12)
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("n_embd", self.n_embd, "n_head", self.n_head)


@register("openai-gpt", OpenAIGPTConfig)
def openai_gpt(c: OpenAIGPTConfig) -> Module:
    hidden, dim = c.n_embd, c.n_embd // c.n_head

    def conv1d(read: int, out: int) -> Linear:
        return Linear(read, out, bias=True, transposed=True)

    block = Module(
        attn=Module(
            c_attn=conv1d(hidden, 3 * hidden),
            core=Attention(c.n_head, dim, dim, Full()),
            c_proj=conv1d(hidden, hidden),
        ),
        ln_1=LayerNorm(hidden),
        mlp=Module(c_fc=conv1d(hidden, 4 * hidden), c_proj=conv1d(4 * hidden, hidden)),
        ln_2=LayerNorm(hidden),
    )
    tied_to = "transformer.tokens_embed.weight" if c.tie_word_embeddings else None
    return Module(
        transformer=Module(
            tokens_embed=Embedding(c.vocab_size, hidden),
            positions_embed=Embedding(c.n_positions, hidden, kind="lookup"),
            h=Layers([block] * c.n_layer),
        ),
        lm_head=Linear(hidden, c.vocab_size, kind="head", tied_to=tied_to),
    )
