"""Step 3.5 Flash: windows with more heads than the full layers, a gate on each head, experts beside a
shared one in the layers that the config lists. The structure follows from its published fields."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    TypedDecoder,
    attention,
    causal_lm,
    check_top_k,
    check_types,
    decoder_layer,
    each,
    mlp,
    moe,
)
from flopcalc.config import Count, Schema, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module


class OtherAttention(Schema):
    """What the layers of another type than full attention have."""

    attention_type: str = "sliding_attention"
    num_attention_heads: Size
    num_attention_groups: Size
    head_dim: Size = 128


class Step3p5Config(TypedDecoder):
    vocab_size: Size = 128896
    intermediate_size: Size = 11264
    num_hidden_layers: Count = 45
    num_attention_heads: Size = 64
    num_key_value_heads: Size | None = aliases("num_attention_groups", "num_key_value_heads", default=8)
    head_dim: Size = 128
    sliding_window: Count | None = 512
    layer_types: list[str] | None = None
    num_sliding_attention_heads: Size | None = None
    attention_other_setting: OtherAttention | None = legacy()
    mlp_layer_types: list[str] | None = None
    moe_layers_enum: str | list[int] | None = legacy()
    n_routed_experts: Size = aliases("moe_num_experts", "n_routed_experts", "num_local_experts", default=288)
    num_experts_per_tok: Size = aliases("moe_top_k", "num_experts_per_tok", default=8)
    moe_intermediate_size: Size = 1280
    share_expert_dim: Size = 1280
    use_head_wise_attn_gate: bool = True

    def derive(self) -> None:
        layers = self.num_hidden_layers
        if self.layer_types is not None:  # the depths of multi-token prediction stand behind the layers
            self.layer_types = self.layer_types[:layers]
        super().derive()
        if self.attention_other_setting is None:
            if self.num_sliding_attention_heads is None:
                raise ValueError("attention_other_setting: found none, expected the heads of the sliding layers")
            self.attention_other_setting = OtherAttention(
                num_attention_heads=self.num_sliding_attention_heads,
                num_attention_groups=self.num_key_value_heads,
                head_dim=self.head_dim,
            )
        self.num_sliding_attention_heads = self.attention_other_setting.num_attention_heads
        if self.mlp_layer_types is None:
            listed = self.moe_layers_enum
            if listed is None:
                raise ValueError("moe_layers_enum: found none, expected the numbers of the layers with experts")
            sparse = set(listed) if isinstance(listed, list) else {int(i) for i in listed.split(",") if i.strip()}
            self.mlp_layer_types = ["sparse" if i in sparse else "dense" for i in range(layers)]
        self.mlp_layer_types = self.mlp_layer_types[:layers]
        check_types("mlp_layer_types", self.mlp_layer_types, layers, ("sparse", "dense"))
        check_top_k(self.num_experts_per_tok, self.n_routed_experts, "moe_top_k")


@register("step3p5", Step3p5Config)
def step3p5(c: Step3p5Config) -> Module:
    hidden, other = c.hidden_size, c.attention_other_setting

    def layer(kind: tuple[str, str]) -> Module:
        attends, mlp_type = kind
        sizes = c
        if other and attends == other.attention_type:
            sizes = c.model_copy(
                update={
                    "num_attention_heads": other.num_attention_heads,
                    "num_key_value_heads": other.num_attention_groups,
                    "head_dim": other.head_dim,
                }
            )
        gate = Linear(hidden, sizes.num_attention_heads, kind="output_gate")
        self_attn = attention(
            sizes, c.span(attends), qk_norm=True, after_core={"g_proj": gate} if c.use_head_wise_attn_gate else {}
        ).reading("g_proj")
        if mlp_type == "dense":
            return decoder_layer(hidden, self_attn=self_attn, mlp=mlp(hidden, c.intermediate_size))
        shared = mlp(hidden, c.share_expert_dim)
        routed = moe(hidden, c.moe_intermediate_size, c.n_routed_experts, c.num_experts_per_tok, share_expert=shared)
        return decoder_layer(hidden, self_attn=self_attn, mlp=routed)

    return causal_lm(c, each(layer, zip(c.layer_types or [], c.mlp_layer_types or [], strict=True)))
