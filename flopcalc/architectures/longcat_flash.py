"""LongCat-Flash: a layer is two of attention and MLP, with experts beside them from the first MLP's input
to the layer's end. Some experts give the token back: of the `moe_topk` that a token picks, the share of
real ones among all computes (8 of 12 in LongCat-Flash-Chat, whose router is trained to keep it so)."""

from __future__ import annotations

from flopcalc.architectures.blocks import causal_lm, check_top_k, mla, mlp
from flopcalc.architectures.deepseek import Latent
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Layers, Linear, Module, Norm, Routed, Weight


class LongcatFlashConfig(Latent):
    vocab_size: Size = 131072
    hidden_size: Size = 6144
    num_hidden_layers: Count | None = None
    num_layers: Count = 28
    num_attention_heads: Size = 64
    intermediate_size: Size = aliases("intermediate_size", "ffn_hidden_size", default=12288)
    q_lora_rank: Size = 1536
    moe_topk: Size = aliases("num_experts_per_tok", "moe_topk", default=12)
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=512)
    zero_expert_num: Count | None = 256
    expert_ffn_hidden_size: Size = aliases("moe_intermediate_size", "expert_ffn_hidden_size", default=2048)

    def derive(self) -> None:
        if self.num_hidden_layers is not None:
            self.num_layers = self.num_hidden_layers // 2
        self.num_hidden_layers = 2 * self.num_layers
        check_top_k(self.moe_topk, self.choices, "moe_topk")

    @property
    def choices(self) -> int:
        """Experts that the router knows, those that do nothing among them."""
        return self.n_routed_experts + (self.zero_expert_num or 0)


def mixture(c: LongcatFlashConfig) -> Module:
    """Experts of which some do nothing; of the rows of gate_up_proj those of the real ones work."""
    hidden, width, choices, real = c.hidden_size, c.expert_ffn_hidden_size, c.choices, c.n_routed_experts
    gate_up = Weight((choices, 2 * width, hidden), "experts")
    return Module(
        router=Module(classifier=Linear(hidden, choices, kind="router")),
        experts=Routed(
            choices,
            c.moe_topk,
            gate_up_proj=Routed(choices, real, **{"": gate_up}),
            down_proj=Weight((real, hidden, width), "experts"),
        ),
    ).reading("router", "experts")


@register("longcat_flash", LongcatFlashConfig)
def longcat_flash(c: LongcatFlashConfig) -> Module:
    hidden = c.hidden_size
    parts = {
        "input_layernorm": Norm(hidden),
        "self_attn": mla(c, Full()),
        "post_attention_layernorm": Norm(hidden),
        "mlps": mlp(hidden, c.intermediate_size),
    }
    first = {name: Module(**{"0": part}) for name, part in parts.items()}
    second = {name: Module(**{"1": part}) for name, part in parts.items()}
    layer = Module(
        **{name: first[name] for name in ("input_layernorm", "self_attn", "post_attention_layernorm")},
        mlp=mixture(c),
        mlps=first["mlps"],
        **{"": Module(**second)},
    ).reading(mlp="post_attention_layernorm", mlps="post_attention_layernorm")
    return causal_lm(c, Layers([layer] * c.num_layers))
