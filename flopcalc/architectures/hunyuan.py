"""Hunyuan-A13B and Hunyuan-Large as published: norms on the heads, and experts whose number per token,
width and shared ones may differ from layer to layer. The structure is that of `modeling_hunyuan.py`."""

from __future__ import annotations

from typing import TypeVar

from flopcalc.architectures.blocks import (
    Decoder,
    attention,
    causal_lm,
    check_top_k,
    decoder_layer,
    each,
    experts,
    mlp,
)
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Linear, Module, Norm

T = TypeVar("T")


class HunyuanConfig(Decoder):
    vocab_size: Size = 290943
    head_dim: Size | None = aliases("attention_head_dim", "head_dim", default=None)
    attention_bias: bool = False
    mlp_bias: bool = False
    use_qk_norm: bool = False
    num_experts: Size = 1
    moe_topk: Size | list[Size] = 1
    moe_intermediate_size: Size | list[Size] | None = None
    num_shared_expert: Count | list[Count] = 1
    use_mixed_mlp_moe: bool = False
    moe_layer_num_skipped: Count = 0
    use_cla: bool = legacy(False)
    use_mla: bool = legacy(False)

    def derive(self) -> None:
        super().derive()
        for field in ("use_cla", "use_mla"):
            if getattr(self, field):
                raise ValueError(f"{field}: found True, expected False: keys and values of each layer's own")
        for field in ("moe_topk", "moe_intermediate_size", "num_shared_expert"):
            self.of_layers(field, getattr(self, field))
        check_top_k(max(self.of_layers("moe_topk", self.moe_topk), default=0), self.num_experts, "moe_topk")

    def of_layers(self, field: str, value: T | list[T]) -> list[T]:
        """One value a layer, of a field that holds one for all, or one for each."""
        values = value if isinstance(value, list) else [value] * self.num_hidden_layers
        if len(values) != self.num_hidden_layers:
            raise ValueError(
                f"{field}: found {len(values)} entries, expected num_hidden_layers = {self.num_hidden_layers}"
            )
        return values


@register("hunyuan", HunyuanConfig)
def hunyuan(c: HunyuanConfig) -> Module:
    hidden = c.hidden_size
    norm = Norm(c.head_dim) if c.use_qk_norm else None
    self_attn = attention(c, Full(), bias=c.attention_bias, query_layernorm=norm, key_layernorm=norm).reading(
        query_layernorm="q_proj", key_layernorm="k_proj"
    )

    def layer(kind: tuple[bool, int, int, int]) -> Module:
        sparse, top_k, width, shared = kind
        routed = Module(
            gate=Module(wg=Linear(hidden, c.num_experts, kind="router")),
            experts=experts(hidden, width, c.num_experts, top_k),
            shared_mlp=mlp(hidden, width * shared, bias=c.mlp_bias) if c.use_mixed_mlp_moe else None,
        ).reading("gate", "experts", "shared_mlp")
        dense = mlp(hidden, c.intermediate_size, bias=c.mlp_bias)
        return decoder_layer(hidden, self_attn=self_attn, mlp=routed if sparse else dense)

    kinds = zip(
        (c.num_experts > 1 and i >= c.moe_layer_num_skipped for i in range(c.num_hidden_layers)),
        c.of_layers("moe_topk", c.moe_topk),
        c.of_layers("moe_intermediate_size", c.moe_intermediate_size or c.intermediate_size),
        c.of_layers("num_shared_expert", c.num_shared_expert),
        strict=True,
    )
    return causal_lm(c, each(layer, kinds))
