"""A.X K2: DeepSeek-V3.2's indexed latent attention whose queries and output gate come out of one matrix
over the query latent, before and after its norm; norms with a low-rank gate."""

from __future__ import annotations

from flopcalc.architectures.blocks import SparseLayers, causal_lm, dense_or_sparse, each, mla
from flopcalc.architectures.deepseek import LatentMoe, indexer
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.spans import TopK
from flopcalc.tree import Linear, Module, Norm


class AxK2Config(LatentMoe, SparseLayers):
    vocab_size: Size = 163840
    hidden_size: Size = 2048
    intermediate_size: Size = 5120
    moe_intermediate_size: Size = 512
    num_hidden_layers: Count = 48
    num_attention_heads: Size = 32
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=128)
    kv_lora_rank: Size = 128
    q_lora_rank: Size = 384
    qk_rope_head_dim: Size = 32
    v_head_dim: Size = 64
    qk_nope_head_dim: Size = 64
    index_topk: Size = 2048
    index_head_dim: Size = 128
    index_n_heads: Size = 16
    gated_norm_rank: Size = 16
    first_k_dense_replace: Count = legacy(1)
    moe_layer_freq: Size = legacy(1)


@register("axk2", AxK2Config)
def axk2(c: AxK2Config) -> Module:
    hidden, rank, heads = c.hidden_size, c.gated_norm_rank, c.num_attention_heads
    gated_norm = Module(norm=Norm(hidden), mlp=Module(fc1=Linear(hidden, rank), fc2=Linear(rank, hidden)))
    head_width = c.qk_nope_head_dim + c.qk_rope_head_dim + c.v_head_dim
    latent = mla(c, TopK(c.index_topk), indexer=indexer(c))
    self_attn = latent.replacing(q_b_proj={"q_gate_proj": Linear(2 * c.q_lora_rank, heads * head_width)})

    def layer(kind: str) -> Module:
        return Module(
            input_layernorm=gated_norm,
            self_attn=self_attn,
            post_attention_layernorm=gated_norm if kind == "sparse" else Norm(hidden),
            mlp=dense_or_sparse(c, kind, c.n_routed_experts, c.n_shared_experts),
        )

    return causal_lm(c, each(layer, c.mlp_layer_types))
