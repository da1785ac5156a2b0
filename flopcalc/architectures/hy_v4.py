"""Hy4: GLM-5's indexed latent attention with sinks and an output gate, residual streams that are collapsed
and expanded but never mixed, dense layers first and then experts."""

from __future__ import annotations

from flopcalc.architectures.blocks import SparseLayers, causal_lm, check_types, dense_or_sparse, each, mla
from flopcalc.architectures.deepseek import LatentMoe, indexer
from flopcalc.architectures.deepseek_v4 import head_connection
from flopcalc.config import Count, Repeats, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import TopK
from flopcalc.tree import Linear, Module, Norm, Weight


class HyV4Config(LatentMoe, SparseLayers):
    leading_dense = 1

    vocab_size: Size = 120832
    hidden_size: Size = 2816
    intermediate_size: Size = 6912
    moe_intermediate_size: Size = 768
    num_hidden_layers: Count = 34
    num_attention_heads: Size = 32
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=256)
    q_lora_rank: Size = 1536
    kv_lora_rank: Size = 512
    qk_nope_head_dim: Size = 192
    qk_rope_head_dim: Size = 64
    v_head_dim: Size = 256
    index_topk: Size = 2048
    index_head_dim: Size = 128
    index_n_heads: Size = 16
    indexer_types: list[str] | None = None
    hc_mult: Repeats = 4

    def derive(self) -> None:
        super().derive()
        layers = self.num_hidden_layers
        if self.indexer_types is None:
            self.indexer_types = ["full" if i == 0 or i % 4 == 1 else "shared" for i in range(layers)]
        check_types("indexer_types", self.indexer_types, layers, ("full", "shared"))
        if self.indexer_types[:1] == ["shared"]:
            raise ValueError("indexer_types[0]: found 'shared', expected 'full': no layer before it picks keys")


@register("hy_v4", HyV4Config)
def hy_v4(c: HyV4Config) -> Module:
    hidden, streams, heads = c.hidden_size, c.hc_mult, c.num_attention_heads
    connection = Module(
        fn=Weight((2 * streams, streams * hidden), "stream_map"), base=Weight((2 * streams,)), scale=Weight((2,))
    )

    def layer(kind: tuple[str, str]) -> Module:
        indexing, mlp_type = kind
        self_attn = mla(
            c,
            TopK(c.index_topk),
            indexer=indexer(c) if indexing == "full" else None,
            sinks=Weight((heads,)),
            after_core={"gate_proj": Linear(hidden, heads * c.v_head_dim, kind="output_gate")},
        ).reading("gate_proj")
        return Module(
            attn_hc=connection,
            input_layernorm=Norm(hidden),
            self_attn=self_attn,
            ffn_hc=connection,
            post_attention_layernorm=Norm(hidden),
            mlp=dense_or_sparse(c, mlp_type, c.n_routed_experts, c.n_shared_experts),
        )

    layers = each(layer, zip(c.indexer_types or [], c.mlp_layer_types or [], strict=True))
    return causal_lm(c, layers, hc_head=head_connection(c))
