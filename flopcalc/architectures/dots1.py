"""dots.llm1: norms on the heads, dense layers first and then routed and shared experts."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    TypedDecoder,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    dense_or_sparse,
    each,
    leading_dense,
)
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.tree import Module


class Dots1Config(TypedDecoder):
    vocab_size: Size = 152064
    hidden_size: Size = 4608
    intermediate_size: Size = 10944
    num_hidden_layers: Count = 62
    num_key_value_heads: Size | None = 32
    moe_intermediate_size: Size = 1408
    n_routed_experts: Size | None = aliases("num_local_experts", "n_routed_experts", default=None)
    n_shared_experts: Count | None = None
    num_experts_per_tok: Size | None = None
    first_k_dense_replace: Count = 0
    attention_bias: bool = False
    sliding_window: Count | None = 4096
    max_window_layers: Count = 62

    def default_layer_types(self) -> list[str]:
        slides_from = self.num_hidden_layers if self.sliding_window is None else self.max_window_layers
        layers = range(self.num_hidden_layers)
        return ["sliding_attention" if i >= slides_from else "full_attention" for i in layers]

    def derive(self) -> None:
        super().derive()
        for name in ("n_routed_experts", "n_shared_experts", "num_experts_per_tok"):  # the class has no defaults
            if getattr(self, name) is None and self.first_k_dense_replace < self.num_hidden_layers:
                raise ValueError(f"{name}: found None, expected the number that its MoE layers have")
        check_top_k(self.num_experts_per_tok or 0, self.n_routed_experts or 0)


@register("dots1", Dots1Config)
def dots1(c: Dots1Config) -> Module:
    def layer(kind: tuple[str, str]) -> Module:
        attends, mlp_type = kind
        return decoder_layer(
            c.hidden_size,
            self_attn=attention(c, c.span(attends), bias=c.attention_bias, qk_norm=True),
            mlp=dense_or_sparse(c, mlp_type, c.n_routed_experts, c.n_shared_experts),
        )

    mlp_types = leading_dense(c.num_hidden_layers, c.first_k_dense_replace)
    return causal_lm(c, each(layer, zip(c.layer_types, mlp_types, strict=True)))
