"""Reformer: layers of local chunks alternate with layers that sort tokens by hash and attend within
chunks of that order. The residual streams are two, and the head reads both."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.blocks import check_types, each
from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register
from flopcalc.spans import Hashes, NearChunks
from flopcalc.tree import Attention, Embedding, IndexScores, LayerNorm, Layers, Linear, Module, Weight


class ReformerConfig(Schema):
    vocab_size: Size = 320
    hidden_size: Size = 256
    feed_forward_size: Size = 512
    num_attention_heads: Size = 12
    attention_head_size: Size = 64
    num_hidden_layers: Count | None = None
    attn_layers: list[str] = Field(default_factory=lambda: ["local", "lsh"] * 3)
    local_attn_chunk_length: Size = 64
    local_num_chunks_before: Count = 1
    local_num_chunks_after: Count = 0
    lsh_attn_chunk_length: Size = 64
    lsh_num_chunks_before: Count = 1
    lsh_num_chunks_after: Count = 0
    num_buckets: Size | list[Size] | None = None
    num_hashes: Size = 1
    max_position_embeddings: Size = 4096
    axial_pos_embds: bool = True
    axial_pos_shape: list[Size] = Field(default_factory=lambda: [64, 64])
    axial_pos_embds_dim: list[Size] = Field(default_factory=lambda: [64, 192])
    is_decoder: bool = False
    tie_word_embeddings: bool = False

    def derive(self) -> None:
        if self.num_hidden_layers is None:
            self.num_hidden_layers = len(self.attn_layers)
        check_types("attn_layers", self.attn_layers, self.num_hidden_layers, ("local", "lsh"))
        if not self.is_decoder:
            raise ValueError("is_decoder: found False, expected True: the language model masks what comes later")
        for kind in set(self.attn_layers):
            after = getattr(self, f"{kind}_num_chunks_after")
            if after:
                raise ValueError(f"{kind}_num_chunks_after: found {after}, expected 0: what comes later is masked")
        if self.axial_pos_embds:
            self._check_axes()

    def _check_axes(self) -> None:
        axes, dims, hidden = self.axial_pos_shape, self.axial_pos_embds_dim, self.hidden_size
        if sum(dims) != hidden:
            raise ValueError(f"axial_pos_embds_dim: found {dims}, expected a sum of hidden_size = {hidden}")
        if len(axes) != len(dims):
            raise ValueError(f"axial_pos_shape: found {len(axes)} axes, expected as many as axial_pos_embds_dim {dims}")

    def hashes(self) -> Hashes:
        """Directions of the hash of each token."""
        size, given = self.lsh_attn_chunk_length, self.num_buckets
        buckets = sum(given) if isinstance(given, list) else given
        limit = 2 * max(int((self.max_position_embeddings // size) ** 0.5), size)
        return Hashes(size, self.num_hashes, buckets, limit)


def positions(c: ReformerConfig) -> Module:
    """One table, or one for each axis of a grid that a document fills row by row."""
    if not c.axial_pos_embds:
        return Module(embedding=Embedding(c.max_position_embeddings, c.hidden_size, kind="lookup"))

    def table(axis: int, dim: int) -> Weight:
        shape = [1] * len(c.axial_pos_shape)
        shape[axis] = c.axial_pos_shape[axis]
        return Weight((*shape, dim), "lookup")

    return Module(weights=Layers(table(axis, dim) for axis, dim in enumerate(c.axial_pos_embds_dim)))


def lsh_attention(c: ReformerConfig) -> Module:
    """Queries are keys too. Which pairs of the sorted order lie in the past depends on the tokens:
    counted as those of local chunks."""
    inner = c.num_attention_heads * c.attention_head_size
    span = NearChunks(c.lsh_attn_chunk_length, c.lsh_num_chunks_before, c.num_hashes)
    hashes = IndexScores(c.num_attention_heads, c.attention_head_size, c.hashes())
    return Module(
        query_key=Linear(c.hidden_size, inner),
        value=Linear(c.hidden_size, inner),
        **{"": Module(hashes=hashes).as_indexer()},
        core=Attention(c.num_attention_heads, c.attention_head_size, c.attention_head_size, span),
    ).reading("query_key", "value")


def local_attention(c: ReformerConfig) -> Module:
    projection = Linear(c.hidden_size, c.num_attention_heads * c.attention_head_size)
    span = NearChunks(c.local_attn_chunk_length, c.local_num_chunks_before)
    core = Attention(c.num_attention_heads, c.attention_head_size, c.attention_head_size, span)
    return Module(query=projection, key=projection, value=projection, core=core).reading("query", "key", "value")


@register("reformer", ReformerConfig)
def reformer(c: ReformerConfig) -> Module:
    hidden, inner = c.hidden_size, c.num_attention_heads * c.attention_head_size

    def layer(kind: str) -> Module:
        return Module(
            attention=Module(
                layer_norm=LayerNorm(hidden),
                self_attention=lsh_attention(c) if kind == "lsh" else local_attention(c),
                output=Module(dense=Linear(inner, hidden)),
            ),
            feed_forward=Module(
                layer_norm=LayerNorm(hidden),
                dense=Module(dense=Linear(hidden, c.feed_forward_size, bias=True)),
                output=Module(dense=Linear(c.feed_forward_size, hidden, bias=True)),
            ),
        )

    return Module(
        reformer=Module(
            embeddings=Module(word_embeddings=Embedding(c.vocab_size, hidden), position_embeddings=positions(c)),
            encoder=Module(layers=each(layer, c.attn_layers), layer_norm=LayerNorm(2 * hidden)),
        ),
        lm_head=Module(
            decoder=Linear(2 * hidden, c.vocab_size, bias=True, kind="head"),
            **{"": Module(bias=Weight((c.vocab_size,), "bias")).never_run()},
        ),
    )
