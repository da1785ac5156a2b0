"""Jamba: one layer of eight attends, the others run Mamba; every other layer has experts."""

from __future__ import annotations

from typing import Literal

from flopcalc.architectures.blocks import Decoder, attention, check_top_k, each, experts, lm_head, mamba, mlp, router
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Embedding, Module, Norm


class JambaConfig(Decoder):
    vocab_size: Size = 65536
    intermediate_size: Size = 14336
    num_key_value_heads: Size | None = 8
    num_experts: Size = aliases("num_experts", "num_local_experts", default=16)
    num_experts_per_tok: Size = 2
    expert_layer_period: Size = 2
    expert_layer_offset: Count = 1
    attn_layer_period: Size = 8
    attn_layer_offset: Count = 4
    mamba_d_state: Size = 16
    mamba_d_conv: Size = 4
    mamba_expand: Size = 2
    mamba_dt_rank: Size | Literal["auto"] = "auto"
    mamba_conv_bias: bool = True
    mamba_proj_bias: bool = False

    def derive(self) -> None:
        super().derive()
        for name in ("attn", "expert"):
            period, offset = getattr(self, f"{name}_layer_period"), getattr(self, f"{name}_layer_offset")
            if offset >= period:
                raise ValueError(f"{name}_layer_offset: found {offset}, expected less than its period, {period}")
        if self.num_experts > 1:  # else no layer has a router
            check_top_k(self.num_experts_per_tok, self.num_experts)
        if self.mamba_dt_rank == "auto":
            self.mamba_dt_rank = -(-self.hidden_size // 16)

    def attends(self, layer: int) -> bool:
        return layer % self.attn_layer_period == self.attn_layer_offset

    def is_sparse(self, layer: int) -> bool:
        return self.num_experts > 1 and layer % self.expert_layer_period == self.expert_layer_offset


def mamba_mixer(c: JambaConfig) -> Module:
    """Mamba with norms of the time step, B and C."""
    rank, state = int(c.mamba_dt_rank), c.mamba_d_state
    return mamba(
        c.hidden_size,
        c.mamba_expand * c.hidden_size,
        state,
        rank,
        c.mamba_d_conv,
        conv_bias=c.mamba_conv_bias,
        bias=c.mamba_proj_bias,
        dt_layernorm=Norm(rank),
        b_layernorm=Norm(state),
        c_layernorm=Norm(state),
    )


@register("jamba", JambaConfig)
def jamba(c: JambaConfig) -> Module:
    hidden, width = c.hidden_size, c.intermediate_size

    def layer(kind: tuple[bool, bool]) -> Module:
        attends, sparse = kind
        routed = Module(
            router=router(hidden, c.num_experts),
            experts=experts(hidden, width, c.num_experts, c.num_experts_per_tok),
        ).reading("router", "experts")
        return Module(
            input_layernorm=Norm(hidden),
            self_attn=attention(c, Full()) if attends else None,
            mamba=None if attends else mamba_mixer(c),
            pre_ff_layernorm=Norm(hidden),
            feed_forward=routed if sparse else mlp(hidden, width),
        )

    return Module(
        model=Module(
            embed_tokens=Embedding(c.vocab_size, hidden),
            layers=each(layer, [(c.attends(i), c.is_sparse(i)) for i in range(c.num_hidden_layers)]),
            final_layernorm=Norm(hidden, "final_norm"),
        ),
        lm_head=lm_head(c, "model.embed_tokens.weight" if c.tie_word_embeddings else None),
    )
