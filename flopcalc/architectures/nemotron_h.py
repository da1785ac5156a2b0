"""Nemotron-H and Nemotron 3: a layer is one mixer: Mamba-2, attention, an MLP or a mixture of
experts, in any order. MLPs have no gate; experts may work on a narrower latent of the token."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    LEGACY_LAYER_TYPES,
    Decoder,
    attention,
    check_multiple,
    check_top_k,
    check_types,
    each,
    lm_head,
    mamba2,
    plain_mlp,
    router,
)
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.mtp import next_token_depth, register_mtp
from flopcalc.spans import Full
from flopcalc.tree import Embedding, Layers, Linear, Module, Norm, Routed, Weight

PATTERN = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
"""Letters of the older hybrid_override_pattern."""


class NemotronHConfig(Decoder):
    vocab_size: Size = 131072
    intermediate_size: Size = 21504
    num_key_value_heads: Size = 8
    head_dim: Size = 128
    layers_block_type: list[str] | None = aliases("layers_block_type", "layer_types", default=None)
    hybrid_override_pattern: str = legacy("ME*-")
    mlp_bias: bool = False
    use_bias: bool = False
    use_conv_bias: bool = aliases("mamba_conv_bias", "use_conv_bias", default=True)
    ssm_state_size: Size = 128
    mamba_num_heads: Size = 128
    mamba_head_dim: Size = 64
    n_groups: Size = aliases("mamba_n_groups", "n_groups", default=8)
    conv_kernel: Size = aliases("mamba_d_conv", "conv_kernel", default=4)
    n_routed_experts: Size = aliases("n_routed_experts", "num_local_experts", default=8)
    num_experts_per_tok: Size = 2
    moe_intermediate_size: Size = 7688
    moe_shared_expert_intermediate_size: Count = 7688
    moe_latent_size: Size | None = None
    mtp_layers_block_type: list[str] | None = None
    mtp_hybrid_override_pattern: str = legacy("*E")

    def derive(self) -> None:
        super().derive()
        if self.layers_block_type is None:
            check_types("hybrid_override_pattern", [*self.hybrid_override_pattern], None, PATTERN)
            self.layers_block_type = [PATTERN[letter] for letter in self.hybrid_override_pattern]
        self.layers_block_type = [LEGACY_LAYER_TYPES.get(kind, kind) for kind in self.layers_block_type]
        check_types("layers_block_type", self.layers_block_type, None, PATTERN.values())
        if self.mtp_layers_block_type is None:
            self.mtp_layers_block_type = [PATTERN.get(letter, letter) for letter in self.mtp_hybrid_override_pattern]
        self.mtp_layers_block_type = [LEGACY_LAYER_TYPES.get(kind, kind) for kind in self.mtp_layers_block_type]
        check_types("mtp_layers_block_type", self.mtp_layers_block_type, None, PATTERN.values())
        self.num_hidden_layers = len(self.layers_block_type)  # whatever number was published
        check_multiple("mamba_num_heads", self.mamba_num_heads, "n_groups", self.n_groups)
        check_top_k(self.num_experts_per_tok, self.n_routed_experts)


def latent_moe(c: NemotronHConfig) -> Module:
    """Experts without a gate, between two projections where there is a latent; the shared expert
    and the router see the whole token."""
    hidden, num_experts, width = c.hidden_size, c.n_routed_experts, c.moe_intermediate_size
    latent = c.moe_latent_size or hidden
    return Module(
        gate=router(hidden, num_experts),
        fc1_latent_proj=Linear(hidden, latent, c.mlp_bias) if c.moe_latent_size else None,
        experts=Routed(
            num_experts,
            c.num_experts_per_tok,
            up_proj=Weight((num_experts, width, latent), "experts"),
            down_proj=Weight((num_experts, latent, width), "experts"),
        ),
        fc2_latent_proj=Linear(latent, hidden, c.mlp_bias) if c.moe_latent_size else None,
        shared_experts=plain_mlp(hidden, c.moe_shared_expert_intermediate_size or c.intermediate_size, bias=c.mlp_bias),
    ).reading("gate", "fc1_latent_proj", "shared_experts", experts="fc1_latent_proj")


def mixer(c: NemotronHConfig, kind: str) -> Module:
    if kind == "linear_attention":
        return mamba2(
            c.hidden_size,
            c.mamba_num_heads,
            c.mamba_head_dim,
            c.ssm_state_size,
            c.n_groups,
            c.conv_kernel,
            conv_bias=c.use_conv_bias,
            bias=c.use_bias,
        )
    if kind == "full_attention":
        return attention(c, Full())
    return latent_moe(c) if kind == "moe" else plain_mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias)


def blocks(c: NemotronHConfig, kinds: list[str]) -> Layers:
    return each(lambda kind: Module(norm=Norm(c.hidden_size), mixer=mixer(c, kind)), kinds)


@register_mtp("nemotron_h")
def nemotron_h_mtp(c: NemotronHConfig) -> Module:
    return next_token_depth(c.hidden_size, blocks(c, c.mtp_layers_block_type))


@register("nemotron_h", NemotronHConfig)
def nemotron_h(c: NemotronHConfig) -> Module:
    layers = blocks(c, c.layers_block_type)
    return Module(
        model=Module(
            embeddings=Embedding(c.vocab_size, c.hidden_size), layers=layers, norm_f=Norm(c.hidden_size, "final_norm")
        ),
        lm_head=lm_head(c, None),  # tie_word_embeddings has no effect here
    )
