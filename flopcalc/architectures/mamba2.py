"""Mamba-2: layers of one mixer each, no attention and no MLP."""

from __future__ import annotations

from flopcalc.architectures.blocks import check_multiple, lm_head, mamba2
from flopcalc.config import Count, Schema, Size
from flopcalc.estimators import register
from flopcalc.tree import Embedding, Layers, Module, Norm


class Mamba2Config(Schema):
    vocab_size: Size = 32768
    hidden_size: Size = 4096
    num_hidden_layers: Count = 64
    num_heads: Size = 128
    head_dim: Size = 64
    state_size: Size = 128
    n_groups: Size = 8
    expand: Size = 2
    conv_kernel: Size = 4
    use_bias: bool = False
    use_conv_bias: bool = True
    tie_word_embeddings: bool = False

    def derive(self) -> None:
        check_multiple("num_heads", self.num_heads, "n_groups", self.n_groups)
        inner = self.expand * self.hidden_size
        if self.num_heads * self.head_dim != inner:
            raise ValueError(
                f"num_heads * head_dim: found {self.num_heads * self.head_dim}, expected {inner}, expand * hidden_size"
            )


@register("mamba2", Mamba2Config)
def build(c: Mamba2Config) -> Module:
    layer = Module(
        norm=Norm(c.hidden_size),
        mixer=mamba2(
            c.hidden_size,
            c.num_heads,
            c.head_dim,
            c.state_size,
            c.n_groups,
            c.conv_kernel,
            conv_bias=c.use_conv_bias,
            bias=c.use_bias,
        ),
    )
    return Module(
        backbone=Module(
            embeddings=Embedding(c.vocab_size, c.hidden_size),
            layers=Layers([layer] * c.num_hidden_layers),
            norm_f=Norm(c.hidden_size, "final_norm"),
        ),
        lm_head=lm_head(c, "backbone.embeddings.weight" if c.tie_word_embeddings else None),
    )
