"""ChatGLM2, ChatGLM3 and GLM-4-9B as first published: queries, keys and values in one matrix, gate and up
in another. The structure is that of the `modeling_chatglm.py` beside the published weights."""

from __future__ import annotations

from flopcalc.architectures.blocks import Stack
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Embedding, LayerNorm, Layers, Linear, Module, Node, Norm


class ChatGlmConfig(Stack):
    vocab_size: Size = aliases("padded_vocab_size", "vocab_size", default=65024)
    intermediate_size: Size = aliases("ffn_hidden_size", "intermediate_size", default=13696)
    num_hidden_layers: Count = aliases("num_layers", "num_hidden_layers", default=28)
    head_dim: Size = aliases("kv_channels", "head_dim", default=128)
    multi_query_attention: bool = False
    multi_query_group_num: Size = 1
    add_bias_linear: bool = False
    add_qkv_bias: bool = False
    rmsnorm: bool = True
    post_layer_norm: bool = True
    inner_hidden_size: Size | None = legacy()

    def derive(self) -> None:
        super().derive()
        if self.inner_hidden_size is not None:
            raise ValueError(
                f"inner_hidden_size: found {self.inner_hidden_size}, expected none: it is that of the first ChatGLM, "
                f"whose layers are others"
            )

    @property
    def num_key_value_heads(self) -> int:
        return self.multi_query_group_num if self.multi_query_attention else self.num_attention_heads


@register("chatglm", ChatGlmConfig)
def chatglm(c: ChatGlmConfig) -> Module:
    hidden, width, heads, dim, bias = (
        c.hidden_size,
        c.intermediate_size,
        c.num_attention_heads,
        c.head_dim,
        c.add_bias_linear,
    )
    norm: Node = Norm(hidden) if c.rmsnorm else LayerNorm(hidden)
    final: Node = Norm(hidden, "final_norm") if c.rmsnorm else LayerNorm(hidden, kind="final_norm")
    layer = Module(
        input_layernorm=norm,
        self_attention=Module(
            query_key_value=Linear(hidden, (heads + 2 * c.num_key_value_heads) * dim, bias or c.add_qkv_bias),
            core=Attention(heads, dim, dim, Full()),
            dense=Linear(heads * dim, hidden, bias),
        ),
        post_attention_layernorm=norm,
        mlp=Module(dense_h_to_4h=Linear(hidden, 2 * width, bias), dense_4h_to_h=Linear(width, hidden, bias)),
    )
    encoder = Module(layers=Layers([layer] * c.num_hidden_layers), final_layernorm=final if c.post_layer_norm else None)
    embedding = Module(word_embeddings=Embedding(c.vocab_size, hidden))
    tied_to = "transformer.embedding.word_embeddings.weight" if c.tie_word_embeddings else None
    head = Linear(hidden, c.vocab_size, kind="head", tied_to=tied_to)
    return Module(transformer=Module(embedding=embedding, encoder=encoder, output_layer=head))
