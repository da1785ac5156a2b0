"""BERT and its kin as language models: post-norm layers that read both ways unless `is_decoder`, a
transform before the output matrix. Cross-attention exists where asked for and waits for an encoder."""

from __future__ import annotations

from typing import Literal

from flopcalc.architectures.blocks import Stack, check_multiple
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional, BlockSparse, Full, Span
from flopcalc.tree import Attention, Embedding, LayerNorm, Layers, Linear, Module, Node, Stream, Weight

POST_NORM = frozenset({"attention.output.LayerNorm", "output.LayerNorm"})
"""Where a layer of BERT has its norms; its kin have them elsewhere."""
FIRST_TOKEN = Stream(rows=0, extra=1)


class BertStack(Stack):
    """Fields of a stack of BERT's layers, causal and without cross-attention."""

    vocab_size: Size = 30522
    hidden_size: Size = 768
    intermediate_size: Size = 3072
    num_hidden_layers: Count = 12
    num_attention_heads: Size = 12
    max_position_embeddings: Size = 512
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)

    def span(self) -> Span:
        return Full()

    def crosses(self) -> bool:
        """Whether the layers have cross-attention."""
        return False


class BertConfig(BertStack):
    is_decoder: bool = False
    add_cross_attention: bool = False

    def derive(self) -> None:
        super().derive()
        if self.add_cross_attention and not self.is_decoder:
            raise ValueError("add_cross_attention: found True, expected False where is_decoder is False")

    def span(self) -> Span:
        return Full() if self.is_decoder else Bidirectional()

    def crosses(self) -> bool:
        return self.add_cross_attention


class SegmentedConfig(BertConfig):
    """With embeddings of two segments."""

    type_vocab_size: Size = 2


def bert_layer(
    c: BertStack,
    span: Span | None = None,
    *,
    norms: frozenset[str] = POST_NORM,
    bias: bool = True,
    **after_mlp: Node | None,
) -> Module:
    """A layer with LayerNorms at `norms`; `bias` is that of query, key and value, `after_mlp` comes
    behind the norm of its output."""
    hidden, heads = c.hidden_size, c.num_attention_heads
    dim, square = hidden // heads, Linear(hidden, hidden, bias)

    def norm(place: str) -> Node | None:
        return LayerNorm(hidden) if place in norms else None

    def attention(span: Span) -> Module:
        core = Attention(heads, dim, dim, span)
        return Module(
            ln=norm("attention.ln"),
            LayerNorm=norm("attention.LayerNorm"),
            self_attn_layer_norm=norm("attention.self_attn_layer_norm"),
            self=Module(query=square, key=square, value=square, core=core).reading("query", "key", "value"),
            output=Module(dense=Linear(hidden, hidden, bias=True), LayerNorm=norm("attention.output.LayerNorm")),
        )

    return Module(
        attention=attention(span or c.span()),
        crossattention=attention(Full()).never_run() if c.crosses() else None,
        ln=norm("ln"),
        LayerNorm=norm("LayerNorm"),
        intermediate=Module(
            LayerNorm=norm("intermediate.LayerNorm"), dense=Linear(hidden, c.intermediate_size, bias=True)
        ),
        output=Module(
            dense=Linear(c.intermediate_size, hidden, bias=True), LayerNorm=norm("output.LayerNorm"), **after_mlp
        ),
    )


def embeddings(
    c: BertStack,
    dim: int,
    *,
    positions: bool = True,
    norm: bool = True,
    tied_to: str | None = None,
    **extra: Node | None,
) -> Module:
    """Embeddings of words, positions and segments; further ones come as keywords."""
    segments = c.type_vocab_size if isinstance(c, SegmentedConfig) else None
    return Module(
        word_embeddings=Embedding(c.vocab_size, dim, tied_to),
        position_embeddings=Embedding(c.max_position_embeddings, dim, kind="lookup") if positions else None,
        token_type_embeddings=Embedding(segments, dim, kind="lookup") if segments else None,
        **extra,
        LayerNorm=LayerNorm(dim) if norm else None,
    )


def encoder(c: BertStack, layer: Module) -> Module:
    return Module(layer=Layers([layer] * c.num_hidden_layers))


def output_matrix(c: BertConfig, dim: int, tied_to: str | None) -> dict[str, Node]:
    """`decoder` and the vector `bias`, which is the bias of `decoder` where they are tied, and idle
    where they are not."""
    bias = Weight((c.vocab_size,), "bias")
    if c.tie_word_embeddings:
        return {"decoder": Linear(dim, c.vocab_size, kind="head", tied_to=tied_to), "bias": bias}
    return {"decoder": Linear(dim, c.vocab_size, bias=True, kind="head"), "": Module(bias=bias).never_run()}


def bert_lm(c: BertConfig, base: str, embeddings: Module, encoder: Module, **parts: Node | None) -> Module:
    """The skeleton: <base>.embeddings, <base>.encoder, and the head under cls.predictions."""
    narrow = c.embedding_size if isinstance(c, RoFormerConfig) else c.hidden_size
    transform = Module(dense=Linear(c.hidden_size, narrow, bias=True), LayerNorm=LayerNorm(narrow))
    head = output_matrix(c, narrow, f"{base}.embeddings.word_embeddings.weight")
    body = Module(embeddings=embeddings, encoder=encoder, **parts)
    return Module(**{base: body}, cls=Module(predictions=Module(transform=transform, **head)))


@register("bert", SegmentedConfig)
def bert(c: SegmentedConfig) -> Module:
    return bert_lm(c, "bert", embeddings(c, c.hidden_size), encoder(c, bert_layer(c)))


class ErnieConfig(SegmentedConfig):
    task_type_vocab_size: Size = 3
    use_task_id: bool = False


@register("ernie", ErnieConfig)
def ernie(c: ErnieConfig) -> Module:
    tasks = Embedding(c.task_type_vocab_size, c.hidden_size, kind="lookup") if c.use_task_id else None
    return bert_lm(c, "ernie", embeddings(c, c.hidden_size, task_type_embeddings=tasks), encoder(c, bert_layer(c)))


class MegatronBertConfig(SegmentedConfig):
    vocab_size: Size = 29056
    hidden_size: Size = 1024
    intermediate_size: Size = 4096
    num_hidden_layers: Count = 24
    num_attention_heads: Size = 16


@register("megatron-bert", MegatronBertConfig)
def megatron_bert(c: MegatronBertConfig) -> Module:
    """Norms before attention and MLP, and one behind the last layer."""
    layer = bert_layer(c, norms=frozenset({"attention.ln", "ln"}))
    layers = Module(layer=Layers([layer] * c.num_hidden_layers), ln=LayerNorm(c.hidden_size))
    return bert_lm(c, "bert", embeddings(c, c.hidden_size, norm=False), layers)


class RoCBertConfig(SegmentedConfig):
    enable_pronunciation: bool = True
    enable_shape: bool = True
    pronunciation_embed_dim: Size = 768
    pronunciation_vocab_size: Size = 910
    shape_embed_dim: Size = 512
    shape_vocab_size: Size = 24858
    concat_input: bool = True


@register("roc_bert", RoCBertConfig)
def roc_bert(c: RoCBertConfig) -> Module:
    """Words come with their sound and shape, projected to one vector."""
    sound = c.pronunciation_embed_dim if c.enable_pronunciation else 0
    shape = c.shape_embed_dim if c.enable_shape else 0
    joined = embeddings(
        c,
        c.hidden_size,
        pronunciation_embed=Embedding(c.pronunciation_vocab_size, c.pronunciation_embed_dim, kind="lookup"),
        shape_embed=Embedding(c.shape_vocab_size, c.shape_embed_dim, kind="lookup"),
        map_inputs_layer=Linear(c.hidden_size + sound + shape, c.hidden_size, bias=True) if c.concat_input else None,
    )
    return bert_lm(c, "roc_bert", joined, encoder(c, bert_layer(c)))


class RoFormerConfig(SegmentedConfig):
    vocab_size: Size = 50000
    embedding_size: Size | None = None
    max_position_embeddings: Size = 1536

    def derive(self) -> None:
        super().derive()
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size


class ElectraConfig(SegmentedConfig):
    embedding_size: Size = 128
    hidden_size: Size = 256
    intermediate_size: Size = 1024
    num_attention_heads: Size = 4


@register("electra", ElectraConfig)
def electra(c: ElectraConfig) -> Module:
    """Embeddings narrower than the layers, at the output too."""
    hidden, narrow = c.hidden_size, c.embedding_size
    tied_to = "electra.embeddings.word_embeddings.weight" if c.tie_word_embeddings else None
    return Module(
        electra=Module(
            embeddings=embeddings(c, narrow),
            embeddings_project=Linear(narrow, hidden, bias=True) if narrow != hidden else None,
            encoder=encoder(c, bert_layer(c)),
        ),
        generator_predictions=Module(dense=Linear(hidden, narrow, bias=True), LayerNorm=LayerNorm(narrow)),
        generator_lm_head=Linear(narrow, c.vocab_size, bias=True, kind="head", tied_to=tied_to),
    )


class RemBertConfig(SegmentedConfig):
    vocab_size: Size = 250300
    hidden_size: Size = 1152
    intermediate_size: Size = 4608
    num_hidden_layers: Count = 32
    num_attention_heads: Size = 18
    input_embedding_size: Size = 256
    output_embedding_size: Size = 1664
    tie_word_embeddings: bool = False


@register("rembert", RemBertConfig)
def rembert(c: RemBertConfig) -> Module:
    """Narrow embeddings at the input, wide ones at the output: never tied."""
    narrow, wide = c.input_embedding_size, c.output_embedding_size
    return Module(
        rembert=Module(
            embeddings=embeddings(c, narrow),
            encoder=Module(
                embedding_hidden_mapping_in=Linear(narrow, c.hidden_size, bias=True),
                layer=Layers([bert_layer(c)] * c.num_hidden_layers),
            ),
        ),
        cls=Module(
            predictions=Module(
                dense=Linear(c.hidden_size, wide, bias=True),
                LayerNorm=LayerNorm(wide),
                decoder=Linear(wide, c.vocab_size, bias=True, kind="head"),
            )
        ),
    )


class BertGenerationConfig(BertConfig):
    vocab_size: Size = 50358
    hidden_size: Size = 1024
    intermediate_size: Size = 4096
    num_hidden_layers: Count = 24
    num_attention_heads: Size = 16


@register("bert-generation", BertGenerationConfig)
def bert_generation(c: BertGenerationConfig) -> Module:
    """No segments, and no transform before the output matrix."""
    return Module(
        bert=Module(embeddings=embeddings(c, c.hidden_size), encoder=encoder(c, bert_layer(c))),
        lm_head=Module(**output_matrix(c, c.hidden_size, "bert.embeddings.word_embeddings.weight")),
    )


@register("roformer", RoFormerConfig)
def roformer(c: RoFormerConfig) -> Module:
    """Rotary positions, whose table is a parameter of the encoder; embeddings may be narrower than
    the layers."""
    hidden, narrow = c.hidden_size, c.embedding_size
    rotary = Embedding(c.max_position_embeddings, hidden // c.num_attention_heads, kind="lookup")
    return bert_lm(
        c,
        "roformer",
        embeddings(c, narrow, positions=False),
        Module(embed_positions=rotary, layer=Layers([bert_layer(c)] * c.num_hidden_layers)),
        embeddings_project=Linear(narrow, hidden, bias=True) if narrow != hidden else None,
    )


class BigBirdConfig(SegmentedConfig):
    vocab_size: Size = 50358
    max_position_embeddings: Size = 4096
    attention_type: Literal["block_sparse", "original_full"] = "block_sparse"
    use_bias: bool = True
    block_size: Size = 64
    num_random_blocks: Count = 3


@register("big_bird", BigBirdConfig)
def big_bird(c: BigBirdConfig) -> Module:
    """Block-sparse attention of long documents; the pooler reads one token and nothing reads it."""
    sparse = c.attention_type == "block_sparse"
    span = BlockSparse(c.block_size, c.num_random_blocks) if sparse else c.span()
    layers = encoder(c, bert_layer(c, span, bias=c.use_bias))
    pooler = Module(**{"": Linear(c.hidden_size, c.hidden_size, bias=True)}).on(FIRST_TOKEN).without_grad()
    return bert_lm(c, "bert", embeddings(c, c.hidden_size), layers, pooler=pooler)
