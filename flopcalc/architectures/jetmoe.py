"""JetMoE: experts in attention too. A token's `num_experts_per_tok` attention experts each make queries of
all heads and put out what these read, over keys and values that all of them share."""

from __future__ import annotations

from flopcalc.architectures.blocks import Stack, causal_lm, check_top_k, decoder_layer
from flopcalc.config import Count, Size, aliases
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Attention, Layers, Linear, Module, Routed, Weight


class JetMoeConfig(Stack):
    hidden_size: Size = 2048
    intermediate_size: Size = 5632
    num_hidden_layers: Count = 12
    num_attention_heads: Size | None = None
    num_key_value_heads: Size = 16
    kv_channels: Size = aliases("head_dim", "kv_channels", default=128)
    num_local_experts: Size = 8
    num_experts_per_tok: Size = 2
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        self.num_attention_heads = self.num_key_value_heads * self.num_experts_per_tok  # whatever was published
        check_top_k(self.num_experts_per_tok, self.num_local_experts)


def routed(c: JetMoeConfig, name: str, inputs: int, outputs: int) -> dict[str, Routed]:
    """A matrix for each expert, which stands in the module's own place under its name."""
    weight = Module(weight=Weight((c.num_local_experts, outputs, inputs), "experts"))
    return {"": Routed(c.num_local_experts, c.num_experts_per_tok, **{name: weight})}


def mixture_of_attention(c: JetMoeConfig) -> Module:
    """Its experts are one module, which runs in two parts: before the core and behind it."""
    width = c.kv_channels * c.num_key_value_heads
    queries = Module(
        router=Module(layer=Linear(c.hidden_size, c.num_local_experts, kind="router")),
        **routed(c, "input_linear", c.hidden_size, width),
    )
    output = Module(**routed(c, "output_linear", width, c.hidden_size), bias=Weight((c.hidden_size,), "bias"))
    return Module(
        experts=queries,
        kv_proj=Linear(c.hidden_size, 2 * width),
        core=Attention(c.num_attention_heads, c.kv_channels, c.kv_channels, Full()),
        **{"": Module(experts=output)},
    ).reading("experts", "kv_proj")


def mixture_of_mlps(c: JetMoeConfig) -> Module:
    hidden, width = c.hidden_size, c.intermediate_size
    return Module(
        router=Module(layer=Linear(hidden, c.num_local_experts, kind="router")),
        input_linear=Module(**routed(c, "", hidden, 2 * width)),
        output_linear=Module(**routed(c, "", width, hidden)),
        bias=Weight((hidden,), "bias"),
    ).reading("router", "input_linear")


@register("jetmoe", JetMoeConfig)
def jetmoe(c: JetMoeConfig) -> Module:
    layer = decoder_layer(c.hidden_size, self_attention=mixture_of_attention(c), mlp=mixture_of_mlps(c))
    return causal_lm(c, Layers([layer] * c.num_hidden_layers))
