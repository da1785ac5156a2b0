"""HyperCLOVA X: llama whose attention and MLP may each end in a norm."""

from __future__ import annotations

from flopcalc.architectures.blocks import attention, causal_lm, check_multiple, decoder_layer, mlp
from flopcalc.architectures.llama import LlamaConfig
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Module, Norm


class HyperClovaXConfig(LlamaConfig):
    use_post_norm: bool = True

    def derive(self) -> None:
        super().derive()
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)


@register("hyperclovax", HyperClovaXConfig)
def hyperclovax(c: HyperClovaXConfig) -> Module:
    layer = decoder_layer(
        c.hidden_size,
        self_attn=attention(c, Full(), bias=c.attention_bias),
        post_norm1=Norm(c.hidden_size) if c.use_post_norm else None,
        mlp=mlp(c.hidden_size, c.intermediate_size, bias=c.mlp_bias),
        post_norm2=Norm(c.hidden_size) if c.use_post_norm else None,
    )
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
