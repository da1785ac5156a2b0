"""Gemma 2: window and full attention in turn, a norm before and after each half of a layer."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, attention, causal_lm, check_multiple, each, mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Module, Norm


class Gemma(TypedDecoder):
    """What the configs of Gemma 2 and later share."""

    hidden_size: Size = 2304
    intermediate_size: Size = 9216
    num_hidden_layers: Count = 26
    num_attention_heads: Size = 8
    num_key_value_heads: Size = 4
    head_dim: Size = 256
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    sliding_window: Count | None = 4096
    use_bidirectional_attention: bool | None = None


class Gemma2Config(Gemma):
    vocab_size: Size = 256000

    def default_layer_types(self) -> list[str]:
        return ["full_attention" if i % 2 else "sliding_attention" for i in range(self.num_hidden_layers)]

    def derive(self) -> None:
        super().derive()
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        if self.use_bidirectional_attention:  # the flag is declared, yet the model builds causal masks
            raise ValueError("use_bidirectional_attention: found True, expected False, the only mask gemma2 has")


def sandwich_layer(hidden: int, self_attn: Module, mlp: Module) -> Module:
    """A layer that norms what enters and what leaves each of its halves."""
    return Module(
        input_layernorm=Norm(hidden),
        self_attn=self_attn,
        post_attention_layernorm=Norm(hidden),
        pre_feedforward_layernorm=Norm(hidden),
        mlp=mlp,
        post_feedforward_layernorm=Norm(hidden),
    )


@register("gemma2", Gemma2Config)
def gemma2(c: Gemma2Config) -> Module:
    def layer(kind: str) -> Module:
        self_attn = attention(c, c.span(kind), bias=c.attention_bias)
        return sandwich_layer(c.hidden_size, self_attn, mlp(c.hidden_size, c.intermediate_size))

    return causal_lm(c, each(layer, c.layer_types))
