"""MiniMax-M3: an indexer scores every key and each query attends to the blocks of the best ones, its own among
them; leading layers have full attention and a dense MLP."""

from __future__ import annotations

from typing import Any, ClassVar

from flopcalc.architectures.blocks import (
    SparseLayers,
    TypedDecoder,
    attention,
    causal_lm,
    check_multiple,
    check_top_k,
    decoder_layer,
    each,
    fused_mlp,
    moe,
)
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.spans import Full, LocalBlocks, Span
from flopcalc.tree import IndexScores, Linear, Module, Norm

SPARSE = "minimax_m3_sparse"
IN_SPARSE_CONFIG = {
    "sparse_num_index_heads": "index_n_heads",
    "sparse_index_dim": "index_head_dim",
    "sparse_block_size": "index_block_size",
    "sparse_topk_blocks": "index_topk_blocks",
    "sparse_local_block": "index_local_blocks",
}


class MiniMaxM3TextConfig(TypedDecoder, SparseLayers):
    known_layer_types: ClassVar[tuple[str, ...]] = ("full_attention", SPARSE)

    vocab_size: Size = 200064
    hidden_size: Size = 6144
    intermediate_size: Size = 3072
    num_hidden_layers: Count = 60
    num_attention_heads: Size = 64
    num_key_value_heads: Size = 4
    head_dim: Size = 128
    num_local_experts: Size = aliases("num_experts", "num_local_experts", default=128)
    num_experts_per_tok: Size = 4
    dense_intermediate_size: Size = 12288
    shared_intermediate_size: Size = 3072
    index_n_heads: Size = 4
    index_head_dim: Size = 128
    index_block_size: Size = 128
    index_topk_blocks: Size = 16
    index_local_blocks: Size = 1
    sliding_window: Count | None = legacy()
    sparse_attention_config: dict[str, Any] | None = legacy()
    moe_layer_freq: list[int] | None = legacy()

    def derive(self) -> None:
        for name, value in (self.sparse_attention_config or {}).items():
            if name in IN_SPARSE_CONFIG:
                if type(value) is not int or value < 1:
                    raise ValueError(f"sparse_attention_config.{name}: found {value!r}, expected a number above zero")
                setattr(self, IN_SPARSE_CONFIG[name], value)
        super().derive()
        check_top_k(self.num_experts_per_tok, self.num_local_experts)
        if SPARSE in self.layer_types:
            check_multiple("num_attention_heads", self.num_attention_heads, "index_n_heads", self.index_n_heads)

    def default_mlp_layer_types(self) -> list[str]:
        sparse = self.moe_layer_freq or [1] * self.num_hidden_layers
        return ["sparse" if routed else "dense" for routed in sparse]

    def default_layer_types(self) -> list[str]:
        sparse = (self.sparse_attention_config or {}).get("sparse_attention_freq")
        if sparse is None:
            return super().default_layer_types()
        if not isinstance(sparse, list):
            raise ValueError(f"sparse_attention_config.sparse_attention_freq: found {sparse!r}, expected a list")
        return [SPARSE if layer else "full_attention" for layer in sparse]

    def span(self, kind: str) -> Span:
        return (
            LocalBlocks(self.index_topk_blocks * self.index_block_size, self.index_block_size)
            if kind == SPARSE
            else Full()
        )


def indexer(c: MiniMaxM3TextConfig) -> Module:
    heads, dim = c.index_n_heads, c.index_head_dim
    return Module(
        q_proj=Linear(c.hidden_size, heads * dim),
        k_proj=Linear(c.hidden_size, dim),
        q_norm=Norm(dim, "head_norm", heads),
        k_norm=Norm(dim, "head_norm"),
        scores=IndexScores(heads, dim, Full()),
    ).as_indexer()


@register("minimax_m3", MiniMaxM3TextConfig)
@register("minimax_m3_vl_text", MiniMaxM3TextConfig)
def minimax_m3_vl_text(c: MiniMaxM3TextConfig) -> Module:
    hidden = c.hidden_size
    sparse_mlp = moe(
        hidden,
        c.intermediate_size,
        c.num_local_experts,
        c.num_experts_per_tok,
        shared_experts=fused_mlp(hidden, c.shared_intermediate_size),
    )

    def layer(kind: tuple[str, str]) -> Module:
        attends, mlp = kind
        picks = indexer(c) if attends == SPARSE else None
        return decoder_layer(
            hidden,
            self_attn=attention(c, c.span(attends), qk_norm=True, indexer=picks).reading("indexer"),
            mlp=sparse_mlp if mlp == "sparse" else fused_mlp(hidden, c.dense_intermediate_size),
        )

    return causal_lm(c, each(layer, zip(c.layer_types, c.mlp_layer_types, strict=True)))
