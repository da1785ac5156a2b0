"""EXAONE 4: norms after attention and MLP, norms on the heads, a sliding window on three of four layers."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, attention, causal_lm, each, every_nth_full, mlp
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.tree import Module, Norm


class ExaoneWindows(TypedDecoder):
    """Which layers slide, as EXAONE's configs say it: by `layer_types`, or every n-th is full."""

    vocab_size: Size = 102400
    intermediate_size: Size = 16384
    num_key_value_heads: Size = 32
    sliding_window: Count | None = 4096
    sliding_window_pattern: str | int | None = 4

    def default_layer_types(self) -> list[str]:
        every = self.sliding_window_pattern
        if not isinstance(every, int) or every < 1:
            found = f"sliding_window_pattern: found {every!r} (sliding_window {self.sliding_window})"
            raise ValueError(f"{found}, expected a number of layers; or give layer_types")
        return every_nth_full(self.num_hidden_layers, every)

    def derive(self) -> None:
        if self.sliding_window is None:
            self.sliding_window_pattern = 0
        super().derive()


@register("exaone4", ExaoneWindows)
def exaone4(c: ExaoneWindows) -> Module:
    def layer(kind: str) -> Module:
        return Module(
            self_attn=attention(c, c.span(kind), qk_norm=True),
            post_attention_layernorm=Norm(c.hidden_size),
            mlp=mlp(c.hidden_size, c.intermediate_size),
            post_feedforward_layernorm=Norm(c.hidden_size),
        )

    return causal_lm(c, each(layer, c.layer_types))
