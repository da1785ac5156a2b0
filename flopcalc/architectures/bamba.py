"""Bamba: Mamba-2 in most layers, attention in those that the config names, an MLP in all."""

from __future__ import annotations

from typing import Literal

from flopcalc.architectures.blocks import (
    Decoder,
    attention,
    check_multiple,
    each,
    lm_head,
    mamba2,
    mlp,
)
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Embedding, Module, Norm


class Mamba2Hybrid(Decoder):
    """Fields of decoders some of whose layers run Mamba-2."""

    num_key_value_heads: Size | None = None
    attention_bias: bool = False
    mamba_n_heads: Size = 128
    mamba_n_groups: Size = 1
    mamba_d_state: Size = 256
    mamba_d_head: Size | Literal["auto"] = "auto"
    mamba_d_conv: Size = 4
    mamba_expand: Size = 2
    mamba_conv_bias: bool = True
    mamba_proj_bias: bool = False

    def derive(self) -> None:
        super().derive()
        inner = self.mamba_expand * self.hidden_size
        check_multiple("mamba_expand * hidden_size", inner, "mamba_n_heads", self.mamba_n_heads)
        check_multiple("mamba_n_heads", self.mamba_n_heads, "mamba_n_groups", self.mamba_n_groups)
        if self.mamba_d_head == "auto":
            self.mamba_d_head = inner // self.mamba_n_heads
        if self.mamba_d_head * self.mamba_n_heads != inner:
            raise ValueError(
                f"mamba_d_head: found {self.mamba_d_head}, expected mamba_expand * hidden_size / mamba_n_heads = "
                f"{inner // self.mamba_n_heads}"
            )

    def mamba(self) -> Module:
        """The mixer of a Mamba-2 layer."""
        return mamba2(
            self.hidden_size,
            self.mamba_n_heads,
            int(self.mamba_d_head),
            self.mamba_d_state,
            self.mamba_n_groups,
            self.mamba_d_conv,
            conv_bias=self.mamba_conv_bias,
            bias=self.mamba_proj_bias,
        )


class BambaConfig(Mamba2Hybrid):
    vocab_size: Size = 128000
    intermediate_size: Size = 14336
    num_key_value_heads: Size | None = 8
    mlp_bias: bool = False
    attn_layer_indices: list[int] | None = None

    def kinds(self) -> list[str]:
        attending = self.attn_layer_indices or []
        return ["full_attention" if i in attending else "linear_attention" for i in range(self.num_hidden_layers)]


@register("bamba", BambaConfig)
def bamba(c: BambaConfig) -> Module:
    def layer(kind: str) -> Module:
        attends = kind == "full_attention"
        return Module(
            input_layernorm=Norm(c.hidden_size),
            self_attn=attention(c, Full(), bias=c.attention_bias) if attends else None,
            mamba=None if attends else c.mamba(),
            pre_ff_layernorm=Norm(c.hidden_size),
            feed_forward=mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
        )

    return Module(
        model=Module(
            embed_tokens=Embedding(c.vocab_size, c.hidden_size),
            layers=each(layer, c.kinds()),
            final_layernorm=Norm(c.hidden_size, "final_norm"),
        ),
        lm_head=lm_head(c, "model.embed_tokens.weight" if c.tie_word_embeddings else None),
    )
