"""DeepSeek-V4: one key-value head in windows, beside entries that compress the past: one per 4 tokens of
which an indexer picks some (CSA), or one per 128, all read (HCA). The residual is several streams
(hyper-connections), the output projection works in groups of heads, every layer has experts."""

from __future__ import annotations

from functools import partial
from typing import Any

from flopcalc.architectures.blocks import (
    Stack,
    causal_lm,
    check_multiple,
    check_top_k,
    check_types,
    each,
    mlp,
    moe,
)
from flopcalc.config import Count, Repeats, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.mtp import register_mtp
from flopcalc.spans import Compressed, Span, Sum, Window
from flopcalc.tree import Attention, IndexScores, Layers, Linear, Module, Norm, StreamMix, Weight

WINDOWED, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
OF_RATIO = {0: WINDOWED, 4: SPARSE, 128: HEAVY}


class DeepseekV4Config(Stack):
    vocab_size: Size = 129280
    num_hidden_layers: Count = 43
    num_attention_heads: Size = 64
    head_dim: Size = 512
    q_lora_rank: Size = 1024
    o_groups: Size = 8
    o_lora_rank: Size = 1024
    mlp_bias: bool = False
    intermediate_size: Size = aliases("intermediate_size", "moe_intermediate_size", default=2048)
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=256)
    num_experts_per_tok: Size = 6
    hc_mult: Repeats = 4
    sliding_window: Size = 128
    index_n_heads: Size = 64
    index_head_dim: Size = 128
    index_topk: Size = 512
    layer_types: list[str] | None = None
    mlp_layer_types: list[str] | None = None
    compress_rates: dict[str, Size] | None = None
    compress_ratios: list[int] | None = legacy()
    compress_rate_csa: Size | None = legacy()
    compress_rate_hca: Size | None = legacy()
    num_hash_layers: Count | None = legacy()

    def derive(self) -> None:
        super().derive()
        layers = self.num_hidden_layers
        rates = {SPARSE: 4, HEAVY: 128} if self.compress_rates is None else dict(self.compress_rates)
        older = {SPARSE: self.compress_rate_csa, HEAVY: self.compress_rate_hca}
        self.compress_rates = rates | {kind: rate for kind, rate in older.items() if rate is not None}
        if self.layer_types is None:
            self.layer_types = self._default_layer_types()
        if self.mlp_layer_types is None:
            hashed = 3 if self.num_hash_layers is None else self.num_hash_layers
            self.mlp_layer_types = ["hash_moe" if i < hashed else "moe" for i in range(layers)]
        self.layer_types, self.mlp_layer_types = self.layer_types[:layers], self.mlp_layer_types[:layers]
        check_types("layer_types", self.layer_types, layers, OF_RATIO.values())
        check_types("mlp_layer_types", self.mlp_layer_types, layers, ("hash_moe", "moe"))
        check_top_k(self.num_experts_per_tok, self.n_routed_experts)
        for kind in sorted(set(self.layer_types) - {WINDOWED, *self.compress_rates}):
            raise ValueError(f"compress_rates: found no {kind!r}, expected the tokens per entry of such layers")
        check_multiple(
            "num_attention_heads * head_dim", self.num_attention_heads * self.head_dim, "o_groups", self.o_groups
        )

    def _default_layer_types(self) -> list[str]:
        if self.compress_ratios is None:
            return [SPARSE if i > 1 and i % 2 else HEAVY for i in range(self.num_hidden_layers)]
        for ratio in self.compress_ratios:
            if ratio not in OF_RATIO:
                raise ValueError(f"compress_ratios: found {ratio}, expected one of {', '.join(map(str, OF_RATIO))}")
        return [OF_RATIO[ratio] for ratio in self.compress_ratios]


def compressor(c: DeepseekV4Config, kind: str, dim: int, **indexer: Module) -> Module:
    """Pools the tokens of a block into one entry of `dim` by learned gates. CSA's blocks overlap: each
    token has one part for its own block and one for the next."""
    width = 2 * dim if kind == SPARSE else dim
    return Module(
        kv_proj=Linear(c.hidden_size, width),
        gate_proj=Linear(c.hidden_size, width),
        position_bias=Weight((c.compress_rates[kind], width)),
        kv_norm=Norm(dim),
        **indexer,
    ).reading("kv_proj", "gate_proj", "indexer")


def indexer(c: DeepseekV4Config) -> Module:
    """Scores the entries of a compressor of its own; only indices come out, so no gradient goes in."""
    own = compressor(c, SPARSE, c.index_head_dim)
    return Module(
        **dict(own.children),
        q_b_proj=Linear(c.q_lora_rank, c.index_n_heads * c.index_head_dim),
        scorer=Module(
            weights_proj=Linear(c.hidden_size, c.index_n_heads),
            scores=IndexScores(c.index_n_heads, c.index_head_dim, Compressed(c.compress_rates[SPARSE])),
        ),
    ).as_indexer()


def self_attention(c: DeepseekV4Config, kind: str) -> Module:
    heads, dim, hidden = c.num_attention_heads, c.head_dim, c.hidden_size
    span: Span = Window(c.sliding_window)
    pool = None
    if kind == SPARSE:
        span = Sum((span, Compressed(c.compress_rates[kind], c.index_topk)))
        pool = compressor(c, kind, dim, indexer=indexer(c))
    elif kind == HEAVY:
        span = Sum((span, Compressed(c.compress_rates[kind])))
        pool = compressor(c, kind, dim)
    return Module(
        q_a_proj=Linear(hidden, c.q_lora_rank),
        q_a_norm=Norm(c.q_lora_rank, "latent_norm"),
        q_b_proj=Linear(c.q_lora_rank, heads * dim),
        kv_proj=Linear(hidden, dim),
        kv_norm=Norm(dim, "latent_norm"),
        compressor=pool,
        sinks=Weight((heads,)),
        core=Attention(heads, dim, dim, span),
        o_a_proj=Linear(heads * dim // c.o_groups, c.o_groups * c.o_lora_rank),
        o_b_proj=Linear(c.o_groups * c.o_lora_rank, hidden),
    ).reading("kv_proj", "compressor", q_a_norm="q_a_proj", q_b_proj="q_a_norm", kv_norm="kv_proj")


def hyper_connection(c: Any) -> Module:
    """Maps each token's residual streams to the weights that collapse, expand and mix them."""
    streams = c.hc_mult
    weights = (2 + streams) * streams
    return Module(
        fn=Weight((weights, streams * c.hidden_size), "stream_map"),
        base=Weight((weights,)),
        scale=Weight((3,)),
        mix=StreamMix(streams, c.hidden_size),
    )


def stream_layer(c: DeepseekV4Config, kind: str) -> Module:
    hidden, width = c.hidden_size, c.intermediate_size
    shared = mlp(hidden, width, bias=c.mlp_bias)
    return Module(
        attn_hc=hyper_connection(c),
        input_layernorm=Norm(hidden),
        self_attn=self_attention(c, kind),
        ffn_hc=hyper_connection(c),
        post_attention_layernorm=Norm(hidden),
        mlp=moe(hidden, width, c.n_routed_experts, c.num_experts_per_tok, shared_experts=shared),
    )


def head_connection(c: Any) -> Module:
    """Maps the residual streams to the weights that collapse them for the head."""
    maps = Weight((c.hc_mult, c.hc_mult * c.hidden_size), "stream_map")
    return Module(hc_fn=maps, hc_base=Weight((c.hc_mult,)), hc_scale=Weight((1,)))


@register("deepseek_v4", DeepseekV4Config)
def deepseek_v4(c: DeepseekV4Config) -> Module:
    return causal_lm(c, each(partial(stream_layer, c), c.layer_types), hc_head=head_connection(c))


@register_mtp("deepseek_v4")
def deepseek_v4_mtp(c: DeepseekV4Config) -> Module:
    """A windowed layer on residual streams of its own: each takes in what one matrix makes of the
    stream below and another of the next token's embedding."""
    hidden = c.hidden_size
    again = Module(**{"": Linear(hidden, hidden, kind="mtp_projection")}).sharing("mtp.layers.0.h_proj")
    return Module(
        enorm=Norm(hidden, "mtp_norm"),
        hnorm=Norm(hidden, "mtp_norm"),
        e_proj=Linear(hidden, hidden, kind="mtp_projection"),
        h_proj=Linear(hidden, hidden, kind="mtp_projection"),
        h_proj_of_other_streams=Layers([again] * (c.hc_mult - 1)),
        mtp_block=stream_layer(c, WINDOWED),
        hc_head=head_connection(c),
        post_norm=Norm(hidden, "mtp_norm"),
    )
