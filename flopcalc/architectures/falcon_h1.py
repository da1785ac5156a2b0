"""Falcon-H1: every layer runs attention and Mamba-2 side by side on the same input."""

from __future__ import annotations

from typing import Literal

from flopcalc.architectures.blocks import Decoder, attention, check_multiple, lm_head, mamba2, mlp
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Embedding, Layers, Module, Norm


class FalconH1Config(Decoder):
    vocab_size: Size = 128000
    intermediate_size: Size = 14336
    num_key_value_heads: Size | None = 8
    attention_bias: bool = False
    mlp_bias: bool = False
    projectors_bias: bool | None = False
    mamba_d_ssm: Size | None = 1024
    mamba_n_heads: Size = 128
    mamba_d_head: Size | Literal["auto"] = "auto"
    mamba_n_groups: Size = 1
    mamba_d_state: Size = 256
    mamba_d_conv: Size = 4
    mamba_expand: Size = 2
    mamba_conv_bias: bool | None = True
    mamba_proj_bias: bool | None = False
    mamba_rms_norm: bool | None = False

    def derive(self) -> None:
        super().derive()
        field = "mamba_expand * hidden_size" if self.mamba_d_ssm is None else "mamba_d_ssm"
        inner = self.mamba_expand * self.hidden_size if self.mamba_d_ssm is None else self.mamba_d_ssm
        check_multiple(field, inner, "mamba_n_heads", self.mamba_n_heads)
        check_multiple("mamba_n_heads", self.mamba_n_heads, "mamba_n_groups", self.mamba_n_groups)
        if self.mamba_d_head == "auto":
            self.mamba_d_head = inner // self.mamba_n_heads
        if self.mamba_n_heads * self.mamba_d_head != inner:
            raise ValueError(
                f"mamba_d_head: found {self.mamba_d_head}, expected {field} / mamba_n_heads = "
                f"{inner // self.mamba_n_heads}"
            )


@register("falcon_h1", FalconH1Config)
def falcon_h1(c: FalconH1Config) -> Module:
    layer = Module(
        input_layernorm=Norm(c.hidden_size),
        mamba=mamba2(
            c.hidden_size,
            c.mamba_n_heads,
            int(c.mamba_d_head),
            c.mamba_d_state,
            c.mamba_n_groups,
            c.mamba_d_conv,
            conv_bias=bool(c.mamba_conv_bias),
            bias=bool(c.mamba_proj_bias),
            out_bias=bool(c.projectors_bias),
            norm=bool(c.mamba_rms_norm),
        ),
        self_attn=attention(c, Full(), bias=c.attention_bias),
        pre_ff_layernorm=Norm(c.hidden_size),
        feed_forward=mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
    ).reading(self_attn="input_layernorm")
    return Module(
        model=Module(
            embed_tokens=Embedding(c.vocab_size, c.hidden_size),
            layers=Layers([layer] * c.num_hidden_layers),
            final_layernorm=Norm(c.hidden_size, "final_norm"),
        ),
        lm_head=lm_head(c, "model.embed_tokens.weight" if c.tie_word_embeddings else None),
    )
