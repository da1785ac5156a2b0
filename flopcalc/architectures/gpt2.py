"""GPT-2: learned positions, LayerNorms, query, key and value in one projection, weights stored as
(in, out), biases everywhere but on the head."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple
from flopcalc.config import Count, Schema, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, LayerNorm, Layers, Linear, Module, Node


class GptConfig(Schema):
    """GPT's fields under their old names, shared by gpt2, gpt_bigcode, gptj and codegen."""

    vocab_size: Size = 50257
    n_positions: Size = aliases("max_position_embeddings", "n_positions", default=1024)
    n_embd: Size = aliases("hidden_size", "n_embd", default=768)
    n_layer: Count = aliases("num_hidden_layers", "n_layer", default=12)
    n_head: Size = aliases("num_attention_heads", "n_head", default=12)
    n_inner: Size | None = None
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("n_embd", self.n_embd, "n_head", self.n_head)

    def width(self) -> int:
        """Width of the MLP."""
        return self.n_inner or 4 * self.n_embd

    def attention(self) -> Attention:
        dim = self.n_embd // self.n_head
        return Attention(self.n_head, dim, dim, Full())


class DecoderOnlyConfig(GptConfig):
    """A GPT whose class can add cross-attention to an encoder."""

    add_cross_attention: bool = False

    def derive(self) -> None:
        super().derive()
        if self.add_cross_attention:
            raise ValueError("add_cross_attention: found True, expected False: only the decoder alone is supported")


def gpt(c: GptConfig, block: Module, *, positions: bool, head_bias: bool = False) -> Module:
    """The skeleton: transformer.wte, wpe where positions are learned, h, ln_f, and lm_head."""
    return Module(
        transformer=Module(
            wte=Embedding(c.vocab_size, c.n_embd),
            wpe=Embedding(c.n_positions, c.n_embd, kind="lookup") if positions else None,
            h=Layers([block] * c.n_layer),
            ln_f=LayerNorm(c.n_embd),
        ),
        lm_head=Linear(
            c.n_embd,
            c.vocab_size,
            head_bias,
            kind="head",
            tied_to="transformer.wte.weight" if c.tie_word_embeddings else None,
        ),
    )


def gpt_block(c: GptConfig, qkv: Node, attention_out: Node, mlp: Module) -> Module:
    return Module(
        ln_1=LayerNorm(c.n_embd),
        attn=Module(c_attn=qkv, core=c.attention(), c_proj=attention_out),
        ln_2=LayerNorm(c.n_embd),
        mlp=mlp,
    )


@register("gpt2", DecoderOnlyConfig)
@register("gpt-sw3", DecoderOnlyConfig)
def gpt2(c: DecoderOnlyConfig) -> Module:
    def conv1d(inputs: int, outputs: int) -> Linear:
        return Linear(inputs, outputs, bias=True, transposed=True)

    hidden, width = c.n_embd, c.width()
    mlp = Module(c_fc=conv1d(hidden, width), c_proj=conv1d(width, hidden))
    return gpt(c, gpt_block(c, conv1d(hidden, 3 * hidden), conv1d(hidden, hidden), mlp), positions=True)
