"""HRM-Text: two stacks of layers, a slow one and a fast one that runs several times in each of its
cycles, with the same weights every time; an output gate on attention, norms without weights."""

from __future__ import annotations

from flopcalc.architectures.blocks import Stack, attention, check_multiple, lm_head, mlp
from flopcalc.config import Count, Repeats, Size
from flopcalc.estimators import register
from flopcalc.spans import Full
from flopcalc.tree import Embedding, Layers, Linear, Module, Node, Weight


class HrmTextConfig(Stack):
    vocab_size: Size = 151808
    hidden_size: Size = 1536
    intermediate_size: Size = 4096
    num_hidden_layers: Count = 16
    num_attention_heads: Size = 12
    head_dim: Size = 128
    attention_bias: bool = False
    mlp_bias: bool = False
    H_cycles: Repeats = 2
    L_cycles: Repeats = 3
    L_bp_cycles: list[int] | None = None
    num_layers_per_stack: Count | None = None

    def derive(self) -> None:
        super().derive()
        if self.L_bp_cycles is None:
            self.L_bp_cycles = [2]
        if self.num_layers_per_stack is None:
            self.num_layers_per_stack = self.num_hidden_layers
            self.num_hidden_layers *= self.H_cycles * (self.L_cycles + 1)
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)

    @property
    def num_key_value_heads(self) -> int:
        return self.num_attention_heads

    def learnt_cycles(self, cycle: int) -> int:
        """How many of the fast cycles, the last ones, give a gradient in this slow cycle."""
        padded = [1] * (self.H_cycles - len(self.L_bp_cycles)) + self.L_bp_cycles
        return padded[cycle] if cycle < len(padded) else 1


@register("hrm_text", HrmTextConfig)
def hrm_text(c: HrmTextConfig) -> Module:
    hidden = c.hidden_size
    gate = Linear(hidden, c.num_attention_heads * c.head_dim, c.attention_bias, "output_gate")
    layer = Module(
        self_attn=attention(c, Full(), bias=c.attention_bias, after_core={"gate_proj": gate}).reading("gate_proj"),
        mlp=mlp(hidden, c.intermediate_size, bias=c.mlp_bias),
    )
    stack = Module(layers=Layers([layer] * c.num_layers_per_stack))
    runs: dict[str, Node] = {}
    for slow in range(c.H_cycles):
        for fast in range(c.L_cycles):
            run = stack.sharing("model.L_module") if slow or fast else stack
            learns = fast >= c.L_cycles - c.learnt_cycles(slow)
            runs[f"L_module_{slow}_{fast}" if slow or fast else "L_module"] = run if learns else run.without_grad()
        runs[f"H_module_{slow}" if slow else "H_module"] = stack.sharing("model.H_module") if slow else stack
    model = Module(embed_tokens=Embedding(c.vocab_size, hidden), z_L_init=Weight((hidden,)), **runs)
    return Module(model=model, lm_head=lm_head(c, "model.embed_tokens.weight" if c.tie_word_embeddings else None))
