"""Bailing hybrid (Ling 3): five layers of Kimi delta attention to one of latent attention with a gate per
head; many small experts, one of them shared."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    SparseLayers,
    backbone,
    check_top_k,
    check_types,
    decoder_layer,
    dense_or_sparse,
    each,
    lm_head,
    mla,
)
from flopcalc.architectures.deepseek import Latent
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Conv1d, DeltaRule, Linear, Module, Norm, Weight


class BailingHybridConfig(Latent, SparseLayers):
    vocab_size: Size = 157184
    hidden_size: Size = 2560
    intermediate_size: Size = 6144
    moe_intermediate_size: Size = 768
    num_hidden_layers: Count = 42
    num_attention_heads: Size = 32
    q_lora_rank: Size | None = None
    head_dim: Size = 128
    linear_head_dim: Size | None = None
    linear_num_heads: Size | None = None
    linear_conv_kernel_dim: Size | None = None
    short_conv_kernel_size: Size = 4
    n_shared_experts: Count = aliases("num_shared_experts", "n_shared_experts", default=1)
    num_experts_per_tok: Size = aliases("num_experts_per_token", "num_experts_per_tok", default=8)
    num_local_experts: Size = aliases("num_experts", "num_local_experts", default=512)
    first_k_dense_replace: Count = 2
    layer_group_size: Size = 6
    layer_types: list[str] | None = None

    def derive(self) -> None:
        super().derive()
        self.linear_head_dim = self.linear_head_dim or self.head_dim
        self.linear_num_heads = self.linear_num_heads or self.num_attention_heads
        self.linear_conv_kernel_dim = self.linear_conv_kernel_dim or self.short_conv_kernel_size
        self.head_dim = self.qk_rope_head_dim
        layers = self.num_hidden_layers
        if self.layer_types is None:
            group = self.layer_group_size
            self.layer_types = ["linear_attention" if i % group else "full_attention" for i in range(1, layers + 1)]
        check_types("layer_types", self.layer_types, layers, ("full_attention", "linear_attention"))
        check_top_k(self.num_experts_per_tok, self.num_local_experts)


def delta_attention(c: BailingHybridConfig) -> Module:
    """Kimi delta attention whose forget and output gates have full rank."""
    heads, dim, hidden = c.linear_num_heads, c.linear_head_dim, c.hidden_size
    inner = heads * dim
    return Module(
        q_proj=Linear(hidden, inner),
        k_proj=Linear(hidden, inner),
        v_proj=Linear(hidden, inner),
        conv1d=Conv1d(3 * inner, c.linear_conv_kernel_dim),
        forget_gate=Module(f_proj=Linear(hidden, inner), dt_bias=Weight((inner,)), A_log=Weight((heads,))),
        b_proj=Linear(hidden, heads),
        core=DeltaRule(heads, dim, dim),
        g_proj=Linear(hidden, inner),
        o_norm=Norm(dim),
        o_proj=Linear(inner, hidden),
    ).reading("q_proj", "k_proj", "v_proj", "forget_gate", "b_proj", "g_proj")


@register("bailing_hybrid", BailingHybridConfig)
def bailing_hybrid(c: BailingHybridConfig) -> Module:
    gate = {"g_proj": Linear(c.hidden_size, c.num_attention_heads, kind="output_gate")}

    def layer(kind: tuple[str, str]) -> Module:
        attends, mlp = kind
        latent = mla(c, Full(), after_core=gate).reading("g_proj")
        return decoder_layer(
            c.hidden_size,
            self_attn=latent if attends == "full_attention" else delta_attention(c),
            mlp=dense_or_sparse(c, mlp, c.num_local_experts, c.n_shared_experts),
        )

    layers = each(layer, zip(c.layer_types, c.mlp_layer_types, strict=True))
    return Module(model=backbone(c, layers), lm_head=lm_head(c, None))  # never tied, whatever the config says
