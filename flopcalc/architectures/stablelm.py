"""StableLM: LayerNorms, one for each head if asked for; attention and MLP one after the other or side by side."""

from __future__ import annotations

from flopcalc.architectures.blocks import Decoder, attention, causal_lm, check_multiple, mlp
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import LayerNorm, Layers, Module


class StableLmConfig(Decoder):
    vocab_size: Size = 50304
    hidden_size: Size = 2560
    intermediate_size: Size = 6912
    num_key_value_heads: Size = 32
    use_qkv_bias: bool = False
    qk_layernorm: bool = False
    use_parallel_residual: bool = False

    def derive(self) -> None:
        super().derive()
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        self.head_dim = self.hidden_size // self.num_attention_heads


@register("stablelm", StableLmConfig)
def stablelm(c: StableLmConfig) -> Module:
    def norms(heads: int) -> Module | None:
        return Module(norms=Layers([LayerNorm(c.head_dim, bias=False)] * heads)) if c.qk_layernorm else None

    layer = Module(
        input_layernorm=LayerNorm(c.hidden_size),
        self_attn=attention(
            c,
            Full(),
            bias=c.use_qkv_bias,
            o_bias=False,
            q_layernorm=norms(c.num_attention_heads),
            k_layernorm=norms(c.num_key_value_heads),
        ),
        post_attention_layernorm=None if c.use_parallel_residual else LayerNorm(c.hidden_size),
        mlp=mlp(c.hidden_size, c.intermediate_size),
    )
    if c.use_parallel_residual:
        layer = layer.reading(mlp="input_layernorm")
    return causal_lm(c, Layers([layer] * c.num_hidden_layers), norm=LayerNorm(c.hidden_size))
