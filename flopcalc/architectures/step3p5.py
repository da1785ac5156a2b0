"""Step 3.5 Flash: windows with more heads than the full layers, a gate on each head, experts beside a
shared one in the layers that the config lists. The structure follows from its published fields."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, attention, causal_lm, check_top_k, decoder_layer, each, mlp, moe
from flopcalc.config import Count, Schema, Size, aliases
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
    layer_types: list[str] | None
    attention_other_setting: OtherAttention
    moe_layers_enum: str | list[int]
    moe_num_experts: Size = 288
    moe_top_k: Size = 8
    moe_intermediate_size: Size = 1280
    share_expert_dim: Size = 1280
    use_head_wise_attn_gate: bool = True

    def derive(self) -> None:
        if self.layer_types is not None:  # the depths of multi-token prediction stand behind the layers
            self.layer_types = self.layer_types[: self.num_hidden_layers]
        super().derive()
        check_top_k(self.moe_top_k, self.moe_num_experts, "moe_top_k")

    def sparse_layers(self) -> set[int]:
        """The layers that have experts."""
        listed = self.moe_layers_enum
        return set(listed) if isinstance(listed, list) else {int(i) for i in listed.split(",") if i}


@register("step3p5", Step3p5Config)
def step3p5(c: Step3p5Config) -> Module:
    hidden, other = c.hidden_size, c.attention_other_setting

    def layer(kind: tuple[str, bool]) -> Module:
        attends, sparse = kind
        sizes = c
        if attends == other.attention_type:
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
        if not sparse:
            return decoder_layer(hidden, self_attn=self_attn, mlp=mlp(hidden, c.intermediate_size))
        shared = mlp(hidden, c.share_expert_dim)
        routed = moe(hidden, c.moe_intermediate_size, c.moe_num_experts, c.moe_top_k, share_expert=shared)
        return decoder_layer(hidden, self_attn=self_attn, mlp=routed)

    sparse = c.sparse_layers()
    return causal_lm(c, each(layer, ((kind, i in sparse) for i, kind in enumerate(c.layer_types or []))))
