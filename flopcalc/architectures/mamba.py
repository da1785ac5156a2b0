"""Mamba: layers of one selective scan each, no attention and no MLP. Falcon-Mamba also normalises the
scan's inputs, without weights."""

from __future__ import annotations

from typing import Literal

from flopcalc.architectures.blocks import lm_head, mamba
from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register
from flopcalc.tree import Embedding, Layers, Module, Norm


class MambaConfig(Schema):
    vocab_size: Size = 50280
    hidden_size: Size = 768
    intermediate_size: Size | None = None
    num_hidden_layers: Count = 32
    state_size: Size = 16
    expand: Size = 2
    conv_kernel: Size = 4
    use_bias: bool = False
    use_conv_bias: bool = True
    time_step_rank: Size | Literal["auto"] = "auto"
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        if self.intermediate_size is None:
            self.intermediate_size = self.expand * self.hidden_size
        if self.time_step_rank == "auto":
            self.time_step_rank = -(-self.hidden_size // 16)


@register("mamba", MambaConfig)
@register("falcon_mamba", MambaConfig)
def build(c: MambaConfig) -> Module:
    mixer = mamba(
        c.hidden_size,
        c.intermediate_size,
        c.state_size,
        int(c.time_step_rank),
        c.conv_kernel,
        conv_bias=c.use_conv_bias,
        bias=c.use_bias,
    )
    layer = Module(norm=Norm(c.hidden_size), mixer=mixer)
    return Module(
        backbone=Module(
            embeddings=Embedding(c.vocab_size, c.hidden_size),
            layers=Layers([layer] * c.num_hidden_layers),
            norm_f=Norm(c.hidden_size, "final_norm"),
        ),
        lm_head=lm_head(c, "backbone.embeddings.weight" if c.tie_word_embeddings else None),
    )
