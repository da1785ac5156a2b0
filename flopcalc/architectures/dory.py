"""Nemotron Labs Dory: a normalized transformer, so norms without weights and learned scales in their
place; its middle layers run several times."""

from __future__ import annotations

from flopcalc.architectures.blocks import TypedDecoder, attention, backbone, each, every_nth_full, lm_head, mlp
from flopcalc.config import Count, Repeats, Size
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module, Weight


class DoryConfig(TypedDecoder):
    vocab_size: Size = 131072
    hidden_size: Size = 2560
    intermediate_size: Size = 7168
    num_hidden_layers: Count = 36
    num_attention_heads: Size = 16
    num_key_value_heads: Size | None = 4
    head_dim: Size = 256
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: Count | None = 1024
    n_input_layers: Count = 8
    n_recurrent_layers: Count | None = None
    n_output_layers: Count = 8
    n_recurrent_loops: Repeats = 2

    def default_layer_types(self) -> list[str]:
        return every_nth_full(self.num_hidden_layers, 4)

    def derive(self) -> None:
        if self.layer_types is not None and "mlp" in self.layer_types:  # released files list MLPs as layers
            self.layer_types = self.layer_types[::2]
            self.num_hidden_layers //= 2
            self.n_input_layers //= 2
            self.n_output_layers //= 2
            if self.n_recurrent_layers is not None:
                self.n_recurrent_layers //= 2
        super().derive()
        once = self.n_input_layers + self.n_output_layers
        if self.n_recurrent_layers is None:
            self.n_recurrent_layers = max(self.num_hidden_layers - once, 0)
        if self.n_recurrent_layers + once != self.num_hidden_layers:
            raise ValueError(
                f"n_recurrent_layers: found {self.n_recurrent_layers}, expected num_hidden_layers less the {once} "
                f"of n_input_layers and n_output_layers, {self.num_hidden_layers - once}"
            )


@register("dory", DoryConfig)
def dory(c: DoryConfig) -> Module:
    hidden, width, inner = c.hidden_size, c.intermediate_size, c.num_attention_heads * c.head_dim

    def layer(kind: str) -> Module:
        gate = {"gate_proj": Linear(hidden, inner, kind="output_gate"), "s_gate": Weight((inner,))}
        return Module(
            self_attn=attention(c, c.span(kind), bias=c.attention_bias, sqk=Weight((inner,)), after_core=gate).reading(
                "gate_proj", sqk="q_proj"
            ),
            lambda_1=Weight((hidden,)),
            mlp=mlp(hidden, width, bias=c.mlp_bias).holding(suv_gate=Weight((width,)), suv_up=Weight((width,))),
            lambda_2=Weight((hidden,)),
        )

    layers = each(layer, c.layer_types).looped(
        "model.layers", c.n_input_layers, c.n_recurrent_layers, c.n_recurrent_loops
    )
    tied_to = "model.embed_tokens.weight" if c.tie_word_embeddings else None
    head = Module(**{"": lm_head(c, tied_to), "logit_scale": Weight((c.vocab_size,))})
    return Module(model=backbone(c, layers, norm=None), lm_head=head)
