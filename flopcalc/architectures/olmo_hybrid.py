"""OLMo Hybrid: three layers of gated delta rule, normed before, to one of OLMo 2, normed behind."""

from __future__ import annotations

from flopcalc.architectures.blocks import causal_lm, decoder_layer, each, mlp
from flopcalc.architectures.olmo2 import olmo2_layer
from flopcalc.architectures.qwen3_next import DeltaNetDecoder
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Conv1d, DeltaRule, Linear, Module, Norm, Weight


class OlmoHybridConfig(DeltaNetDecoder):
    vocab_size: Size = 100352
    hidden_size: Size = 3840
    intermediate_size: Size = 11008
    num_hidden_layers: Count = 32
    num_attention_heads: Size = 30
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    linear_num_key_heads: Size | None = None
    linear_num_value_heads: Size | None = None
    linear_key_head_dim: Size | None = None
    linear_value_head_dim: Size | None = None

    def derive(self) -> None:
        heads = self.num_attention_heads
        self.num_key_value_heads = self.num_key_value_heads or heads
        self.head_dim = self.head_dim or self.hidden_size // heads
        self.linear_num_key_heads = self.linear_num_key_heads or heads
        self.linear_num_value_heads = self.linear_num_value_heads or heads
        self.linear_key_head_dim = self.linear_key_head_dim or 3 * self.hidden_size // (4 * self.linear_num_key_heads)
        self.linear_value_head_dim = self.linear_value_head_dim or 2 * self.linear_key_head_dim
        unset = self.layer_types is None
        super().derive()
        if unset and "full_attention" not in self.layer_types:
            self.layer_types[-1:] = ["full_attention"]
        if len(set(self.layer_types)) < 2:
            raise ValueError(f"layer_types: found {self.layer_types}, expected layers of both kinds")


def delta_net(c: OlmoHybridConfig) -> Module:
    hidden, heads, key, value = c.hidden_size, c.linear_num_value_heads, c.key_width, c.value_width
    inputs = {"q_proj": key, "k_proj": key, "v_proj": value, "a_proj": heads, "b_proj": heads, "g_proj": value}
    return Module(
        **{name: Linear(hidden, width) for name, width in inputs.items()},
        conv1d=Conv1d(2 * key + value, c.linear_conv_kernel_dim),
        A_log=Weight((heads,)),
        dt_bias=Weight((heads,)),
        recurrence=DeltaRule(heads, c.linear_key_head_dim, c.linear_value_head_dim),
        o_norm=Norm(c.linear_value_head_dim),
        o_proj=Linear(value, hidden),
    ).reading(*inputs)


@register("olmo_hybrid", OlmoHybridConfig)
def olmo_hybrid(c: OlmoHybridConfig) -> Module:
    def layer(kind: str) -> Module:
        if kind == "full_attention":
            return olmo2_layer(c, Full())
        return decoder_layer(c.hidden_size, linear_attn=delta_net(c), mlp=mlp(c.hidden_size, c.intermediate_size))

    return causal_lm(c, each(layer, c.layer_types))
