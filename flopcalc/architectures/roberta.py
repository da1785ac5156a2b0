"""RoBERTa and its kin as language models: BERT's layers, and a head whose transform lies beside the
output matrix."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.bert import SegmentedConfig, bert_layer, embeddings, encoder, output_matrix
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import LayerNorm, Layers, Linear, Module, Node


class RobertaConfig(SegmentedConfig):
    vocab_size: Size = 50265


def roberta_lm(
    c: SegmentedConfig,
    base: str,
    encoder: Module,
    *,
    embedding_norm: bool = True,
    head_first: bool = False,
    **parts: Node | None,
) -> Module:
    """The skeleton: <base>.embeddings, <base>.encoder, lm_head; further parts of <base> as keywords.
    Where the class lists its head first, a tied matrix bears the head's name."""
    words, head = f"{base}.embeddings.word_embeddings.weight", "lm_head.decoder.weight"
    names_head = head_first and c.tie_word_embeddings
    embedding = embeddings(c, c.hidden_size, norm=embedding_norm, tied_to=head if names_head else None)
    return Module(
        **{base: Module(embeddings=embedding, encoder=encoder, **parts)},
        lm_head=Module(
            dense=Linear(c.hidden_size, c.hidden_size, bias=True),
            layer_norm=LayerNorm(c.hidden_size),
            **output_matrix(c, c.hidden_size, None if names_head else words),
        ),
    )


@register("roberta", RobertaConfig)
def roberta(c: RobertaConfig) -> Module:
    return roberta_lm(c, "roberta", encoder(c, bert_layer(c)))


@register("data2vec-text", SegmentedConfig)
def data2vec_text(c: SegmentedConfig) -> Module:
    return roberta_lm(c, "data2vec_text", encoder(c, bert_layer(c)))


@register("camembert", SegmentedConfig)
@register("xlm-roberta", SegmentedConfig)
def camembert(c: SegmentedConfig) -> Module:
    return roberta_lm(c, "roberta", encoder(c, bert_layer(c)), head_first=True)


@register("roberta-prelayernorm", RobertaConfig)
def roberta_prelayernorm(c: RobertaConfig) -> Module:
    layer = bert_layer(c, norms=frozenset({"attention.LayerNorm", "intermediate.LayerNorm"}))
    return roberta_lm(c, "roberta_prelayernorm", encoder(c, layer), LayerNorm=LayerNorm(c.hidden_size))


class XLMRobertaXLConfig(SegmentedConfig):
    vocab_size: Size = 250880
    hidden_size: Size = 2560
    intermediate_size: Size = 10240
    num_hidden_layers: Count = 36
    num_attention_heads: Size = 32
    max_position_embeddings: Size = 514
    type_vocab_size: Size = 1


@register("xlm-roberta-xl", XLMRobertaXLConfig)
def xlm_roberta_xl(c: XLMRobertaXLConfig) -> Module:
    """Norms before attention and MLP, and one behind the last layer; none behind the embeddings."""
    layer = bert_layer(c, norms=frozenset({"attention.self_attn_layer_norm", "LayerNorm"}))
    layers = Module(layer=Layers([layer] * c.num_hidden_layers), LayerNorm=LayerNorm(c.hidden_size))
    return roberta_lm(c, "roberta", layers, embedding_norm=False)


class XmodConfig(SegmentedConfig):
    pre_norm: bool = False
    adapter_reduction_factor: Size = 2
    adapter_layer_norm: bool = False
    languages: list[str] = Field(default_factory=lambda: ["en_XX"])
    default_language: str | None = None

    def derive(self) -> None:
        super().derive()
        if not self.languages:
            raise ValueError("languages: found [], expected at least one")
        if self.default_language is not None and self.default_language not in self.languages:
            raise ValueError(f"default_language: found {self.default_language!r}, expected one of {self.languages}")


@register("xmod", XmodConfig)
def xmod(c: XmodConfig) -> Module:
    """An adapter for each language behind the MLP, all of one size: a token passes through that of its
    own language, here the default one, or else the first."""
    hidden, narrow = c.hidden_size, c.hidden_size // c.adapter_reduction_factor
    adapter = Module(dense1=Linear(hidden, narrow, bias=True), dense2=Linear(narrow, hidden, bias=True))
    spoken = c.default_language or c.languages[0]
    layer = bert_layer(
        c,
        adapter_layer_norm=LayerNorm(hidden) if c.adapter_layer_norm else None,
        adapter_modules=Module(
            **{language: adapter if language == spoken else adapter.never_run() for language in c.languages}
        ),
    )
    norm = LayerNorm(hidden) if c.pre_norm else None
    return roberta_lm(c, "roberta", Module(layer=Layers([layer] * c.num_hidden_layers), LayerNorm=norm))
