"""Phi 1.5 as first published: Phi with queries, keys and values in one matrix, under other names. The
structure is that of the `modeling_phi.py` beside its first weights."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, plain_mlp
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, LayerNorm, Layers, Linear, Module


class PhiMsftConfig(Decoder):
    vocab_size: Size = 50304
    hidden_size: Size = aliases("n_embd", "hidden_size", default=1024)
    intermediate_size: Size | None = aliases("n_inner", "intermediate_size", default=None)
    num_hidden_layers: Count = aliases("n_layer", "num_hidden_layers", default=20)
    num_attention_heads: Size = aliases("n_head", "num_attention_heads", default=16)
    num_key_value_heads: Size | None = aliases("n_head_kv", "num_key_value_heads", default=None)

    def derive(self) -> None:
        super().derive()
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.tie_word_embeddings:
            raise ValueError("tie_word_embeddings: found True, expected False: the head has a bias and its own matrix")


@register("phi-msft", PhiMsftConfig)
def phi_msft(c: PhiMsftConfig) -> Module:
    hidden, heads, dim = c.hidden_size, c.num_attention_heads, c.head_dim
    layer = Module(
        ln=LayerNorm(hidden),
        mixer=Module(
            Wqkv=Linear(hidden, (heads + 2 * c.num_key_value_heads) * dim, bias=True),
            core=Attention(heads, dim, dim, Full()),
            out_proj=Linear(heads * dim, hidden, bias=True),
        ),
        mlp=plain_mlp(hidden, c.intermediate_size, bias=True, names=("fc1", "fc2")),
    ).reading(mlp="ln")
    transformer = Module(embd=Module(wte=Embedding(c.vocab_size, hidden)), h=Layers([layer] * c.num_hidden_layers))
    head = Module(ln=LayerNorm(hidden, kind="final_norm"), linear=Linear(hidden, c.vocab_size, bias=True, kind="head"))
    return Module(transformer=transformer, lm_head=head)
