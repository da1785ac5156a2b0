"""InternLM 2: llama's shapes with queries, keys and values in one matrix, under names of its own. The
structure is that of the published `modeling_internlm2.py`."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, Layers, Linear, Module, Norm


class InternLm2Config(Decoder):
    vocab_size: Size = 103168
    bias: bool = True
    num_hidden_layers: Count = 32


@register("internlm2", InternLm2Config)
def internlm2(c: InternLm2Config) -> Module:
    hidden, width, heads, dim = c.hidden_size, c.intermediate_size, c.num_attention_heads, c.head_dim
    layer = Module(
        attention_norm=Norm(hidden),
        attention=Module(
            wqkv=Linear(hidden, (heads + 2 * c.num_key_value_heads) * dim, c.bias),
            core=Attention(heads, dim, dim, Full()),
            wo=Linear(heads * dim, hidden, c.bias),
        ),
        ffn_norm=Norm(hidden),
        feed_forward=Module(w1=Linear(hidden, width), w3=Linear(hidden, width), w2=Linear(width, hidden)).reading(
            "w1", "w3"
        ),
    )
    model = Module(
        tok_embeddings=Embedding(c.vocab_size, hidden),
        layers=Layers([layer] * c.num_hidden_layers),
        norm=Norm(hidden, "final_norm"),
    )
    tied_to = "model.tok_embeddings.weight" if c.tie_word_embeddings else None
    return Module(model=model, output=Linear(hidden, c.vocab_size, kind="head", tied_to=tied_to))
