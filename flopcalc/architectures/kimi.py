"""Kimi-K2 is DeepSeek-V3 under another name. Kimi-Linear runs Kimi Delta Attention (a gated delta rule
that decays each key channel on its own) in most layers, and latent attention in the others."""

from __future__ import annotations

from typing import Any

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
from flopcalc.architectures.deepseek import DeepseekV3Config, Latent, deepseek_v3
from flopcalc.config import Count, Schema, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Conv1d, DeltaRule, Linear, Module, Norm, Shape, Weight


@register("kimi_k2", DeepseekV3Config)
def kimi_k2(c: DeepseekV3Config) -> Module:
    return deepseek_v3(c)


class LinearAttnConfig(Schema):
    """The delta attention's fields as published files nest them; layers count from 1."""

    head_dim: Size | None = None
    num_heads: Size | None = None
    short_conv_kernel_size: Size | None = None
    full_attn_layers: list[int] | None = None
    kda_layers: list[int] | None = None
    use_full_rank_gate: bool = False


class KimiLayersConfig(Latent, SparseLayers):
    """Fields of the layers that Kimi-Linear and Kimi-K3 share."""

    vocab_size: Size = 163840
    hidden_size: Size = 2304
    intermediate_size: Size = 9216
    num_hidden_layers: Count = 27
    num_attention_heads: Size = 32
    q_lora_rank: Size | None = None
    moe_intermediate_size: Size = 1024
    num_local_experts: Size = aliases("num_experts", "num_local_experts", default=256)
    n_shared_experts: Count = aliases("num_shared_experts", "n_shared_experts", default=1)
    num_experts_per_tok: Size = aliases("num_experts_per_token", "num_experts_per_tok", default=8)
    linear_head_dim: Size = 128
    linear_num_heads: Size = 32
    linear_conv_kernel_dim: Size = 4
    layer_types: list[str] | None = None
    linear_attn_config: LinearAttnConfig = legacy(LinearAttnConfig())
    first_k_dense_replace: Count = legacy(1)

    def default_layer_types(self) -> list[str]:
        """The pattern of a config that has none."""
        return ["full_attention" if i and i % 4 == 0 else "linear_attention" for i in range(self.num_hidden_layers)]

    def derive(self) -> None:
        super().derive()
        nested = self.linear_attn_config
        self.linear_head_dim = nested.head_dim or self.linear_head_dim
        self.linear_num_heads = nested.num_heads or self.linear_num_heads
        self.linear_conv_kernel_dim = nested.short_conv_kernel_size or self.linear_conv_kernel_dim
        if self.layer_types is None:
            self.layer_types = self._listed_layer_types() or self.default_layer_types()
        check_types("layer_types", self.layer_types, self.num_hidden_layers, ("full_attention", "linear_attention"))
        check_top_k(self.num_experts_per_tok, self.num_local_experts)

    def _listed_layer_types(self) -> list[str] | None:
        layers = range(self.num_hidden_layers)
        full, delta = self.linear_attn_config.full_attn_layers, self.linear_attn_config.kda_layers
        if full is None or delta is None:
            return None
        if sorted(full + delta) != [i + 1 for i in layers]:
            raise ValueError(
                f"linear_attn_config: found full_attn_layers {full} and kda_layers {delta}, "
                f"expected each of the layers 1 to {self.num_hidden_layers} in one of them"
            )
        return ["full_attention" if i + 1 in full else "linear_attention" for i in layers]


class KimiLinearConfig(KimiLayersConfig):
    mla_use_output_gate: bool = legacy(False)
    routed_expert_hidden_size: Size | None = legacy()
    attn_res_block_size: Size | None = legacy()

    def derive(self) -> None:
        super().derive()
        for field in ("mla_use_output_gate", "routed_expert_hidden_size", "attn_res_block_size"):
            if found := getattr(self, field):
                raise ValueError(
                    f"{field}: found {found}, expected none: it is Kimi-K3's, whose layers are others; "
                    f"they are counted as the text_config of a kimi_k3"
                )


def delta_attention(c: Any, decay: Shape) -> Module:
    """Kimi Delta Attention: one convolution over queries, keys and values, low-rank forget and output gates;
    `decay` is the shape in which a model stores the decay of each head."""
    heads, dim, hidden = c.linear_num_heads, c.linear_head_dim, c.hidden_size
    inner = heads * dim
    return Module(
        q_proj=Linear(hidden, inner),
        k_proj=Linear(hidden, inner),
        v_proj=Linear(hidden, inner),
        conv1d=Conv1d(3 * inner, c.linear_conv_kernel_dim),
        forget_gate=Module(
            f_a_proj=Linear(hidden, dim),
            f_b_proj=Linear(dim, inner),
            dt_bias=Weight((inner,)),
            A_log=Weight(decay),
        ),
        b_proj=Linear(hidden, heads),
        core=DeltaRule(heads, dim, dim),
        g_a_proj=Linear(hidden, dim),
        g_b_proj=Linear(dim, inner),
        o_norm=Norm(dim),
        o_proj=Linear(inner, hidden),
    ).reading("q_proj", "k_proj", "v_proj", "forget_gate", "b_proj", "g_a_proj", g_b_proj="g_a_proj")


@register("kimi_linear", KimiLinearConfig)
def kimi_linear(c: KimiLinearConfig) -> Module:
    delta = delta_attention(c, (1, 1, c.linear_num_heads, 1))

    def layer(kind: tuple[str, str]) -> Module:
        attends, mlp = kind
        return decoder_layer(
            c.hidden_size,
            self_attn=mla(c, Full()) if attends == "full_attention" else delta,
            mlp=dense_or_sparse(c, mlp, c.num_local_experts, c.n_shared_experts),
        )

    layers = each(layer, zip(c.layer_types, c.mlp_layer_types, strict=True))
    return Module(model=backbone(c, layers), lm_head=lm_head(c, tied_to=None))  # never tied, whatever the config says
