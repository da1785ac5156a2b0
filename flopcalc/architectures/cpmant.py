"""CPM-Ant: a prompt of learned tokens stands before each document, and every token reads all others;
one bias for each pair of segments and each distance."""

from __future__ import annotations

from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional
from flopcalc.tree import Attention, Embedding, Layers, Linear, Module, Norm, Stream, Weight


class CpmAntConfig(Schema):
    vocab_size: Size = 30720
    hidden_size: Size = 4096
    num_attention_heads: Size = 32
    num_hidden_layers: Count = 48
    dim_head: Size = 128
    dim_ff: Size = 10240
    position_bias_num_buckets: Size = 512
    prompt_types: Size = 32
    prompt_length: Count = 32
    segment_types: Size = 32
    tie_word_embeddings: bool = True


@register("cpmant", CpmAntConfig)
def cpmant(c: CpmAntConfig) -> Module:
    """The head leaves the prompt out, so its matrix is its own, whatever tie_word_embeddings says."""
    hidden, heads, inner = c.hidden_size, c.num_attention_heads, c.num_attention_heads * c.dim_head
    attention = Module(
        project_q=Linear(hidden, inner),
        project_k=Linear(hidden, inner),
        project_v=Linear(hidden, inner),
        core=Attention(heads, c.dim_head, c.dim_head, Bidirectional()),
        attention_out=Linear(inner, hidden),
    ).reading("project_q", "project_k", "project_v")
    gated = Module(w_0=Linear(hidden, c.dim_ff), w_1=Linear(hidden, c.dim_ff)).reading("w_0", "w_1")
    layer = Module(
        self_att=Module(layernorm_before_attention=Norm(hidden), self_attention=attention),
        ffn=Module(layernorm_before_ffn=Norm(hidden), ffn=Module(w_in=gated, w_out=Linear(c.dim_ff, hidden))),
    )
    distances = c.segment_types**2 + c.position_bias_num_buckets
    return Module(
        cpmant=Module(
            input_embedding=Embedding(c.vocab_size + c.prompt_types * c.prompt_length, hidden),
            segment_embedding=Embedding(c.segment_types, hidden, kind="lookup"),
            position_bias=Module(relative_attention_bias=Weight((distances, heads), "lookup")),
            encoder=Module(
                layers=Layers([layer] * c.num_hidden_layers),
                output_layernorm=Norm(hidden),
            ),
        ).on(Stream(extra=c.prompt_length)),
        lm_head=Linear(hidden, c.vocab_size, kind="head"),
    )
