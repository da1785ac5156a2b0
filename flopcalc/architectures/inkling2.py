"""Inkling 2: every layer reads its input out of the sums of the blocks of layers before it, by learned
queries; full layers convolve keys and values by weights of each token; all experts are routed. The looped
form runs a stretch of layers several times, each with gated messages of the run before."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from flopcalc.architectures.blocks import check_multiple, check_top_k, each, moe
from flopcalc.architectures.inkling import InklingHeads, normed_embedding, short_convolution
from flopcalc.architectures.towers import alone
from flopcalc.config import Count, Repeats, Schema, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.tree import Attention, Layers, Linear, Module, Node, Norm, Stream, StreamMix, Weight


class Inkling2TextConfig(InklingHeads):
    unpadded_vocab_size: Size = 200058
    hidden_size: Size = 4608
    num_hidden_layers: Count = 48
    num_attention_heads: Size = 48
    swa_num_attention_heads: Size = 48
    swa_num_key_value_heads: Size = 8
    sliding_window_size: Size = aliases("sliding_window", "sliding_window_size", default=1024)
    moe_intermediate_size: Size = aliases("intermediate_size", "moe_intermediate_size", default=2304)
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=384)
    num_experts_per_tok: Size = 8
    n_layers_per_attn_res_block: Size = 6

    def derive(self) -> None:
        super().derive()
        check_top_k(self.num_experts_per_tok, self.n_routed_experts)


class LoopConfig(Schema):
    core_start: Size | None = None
    core_end: Size | None = None
    num_passes: Repeats | None = None
    gate_rank: Size | None = None


class Inkling2LoopTextConfig(Inkling2TextConfig):
    hidden_size: Size = 2304
    num_hidden_layers: Count = 24
    num_attention_heads: Size = 24
    swa_num_attention_heads: Size = 24
    moe_intermediate_size: Size = aliases("intermediate_size", "moe_intermediate_size", default=1152)
    n_routed_experts: Size = aliases("num_local_experts", "n_routed_experts", default=128)
    loop_layer_index_start: Size = 6
    loop_layer_index_end: Size = 18
    loop_num_passes: Repeats = 3
    loop_gate_rank: Size = 64
    loop_config: LoopConfig | None = legacy()

    def derive(self) -> None:
        super().derive()
        nested = self.loop_config or LoopConfig()
        self.loop_layer_index_start = nested.core_start or self.loop_layer_index_start
        self.loop_layer_index_end = nested.core_end or self.loop_layer_index_end
        self.loop_num_passes = nested.num_passes or self.loop_num_passes
        self.loop_gate_rank = nested.gate_rank or self.loop_gate_rank
        for field in ("loop_layer_index_start", "loop_layer_index_end"):
            block = self.n_layers_per_attn_res_block
            check_multiple(field, getattr(self, field), "n_layers_per_attn_res_block", block)
        first, end = self.loop_layer_index_start, self.loop_layer_index_end
        if not first < end <= self.num_hidden_layers:
            raise ValueError(
                f"loop_layer_index_end: found {end}, expected more than loop_layer_index_start, {first}, "
                f"and at most num_hidden_layers, {self.num_hidden_layers}"
            )


class Place(NamedTuple):
    """A layer by its kind, the vectors that its attention (none: its own input alone) and its MLP read from,
    and whether its message gates are at work; None where it has no such gates."""

    kind: str
    attention_reads: int
    mlp_reads: int
    messages: bool | None = None


def places(c: Inkling2TextConfig) -> list[Place]:
    """A block ends with the layer that begins the next one, behind its attention."""
    block = c.n_layers_per_attn_res_block
    return [Place(kind, (i - 1) // block + 2 if i else 0, i // block + 2) for i, kind in enumerate(c.layer_types or [])]


def residual(hidden: int, reads: int, queries: int = 1, *stacked: int) -> Module:
    """Attention of learned queries over `reads` vectors of the token itself: the sums of the blocks so far,
    and that of the open one. One stacked dimension holds the queries of several layers."""
    shape = (hidden,) if queries == 1 else (*stacked, queries, hidden)
    return Module(
        query=alone(Weight(shape, "stream_map"), Stream(rows=reads)),
        mix=StreamMix(reads, hidden, queries * (stacked[0] if stacked else 1)),
    )


def keys_or_values(c: Inkling2TextConfig, heads: int, dim: int, *, dynamic: bool) -> Module:
    channels, taps = heads * dim, c.conv_kernel_size
    linear = Linear(c.hidden_size, channels)
    if not dynamic:
        return Module(linear=linear, sconv=short_convolution(channels, taps))
    own_taps = {"sconv.weight_proj": Linear(c.hidden_size, heads * taps)}  # the name, told apart by what it reads
    static = Module(static_weight=Weight((taps, channels), "conv"))
    return Module(linear=linear, sconv=static, **own_taps).reading("linear", *own_taps)


def self_attention(c: Inkling2TextConfig, kind: str) -> Module:
    heads, kv_heads, dim, reach, span = c.sizes(kind)
    hidden, dynamic = c.hidden_size, kind == "hybrid"
    gate = {"o_proj.gate_proj": Linear(hidden, heads * dim, kind="output_gate")}
    return Module(
        q_proj=Module(linear=Linear(hidden, heads * dim), norm=Module(scale=Weight((heads, dim), "head_norm"))),
        k_proj=keys_or_values(c, kv_heads, dim, dynamic=dynamic),
        v_proj=keys_or_values(c, kv_heads, dim, dynamic=dynamic),
        relative_position_bias=Module(
            linear=Linear(hidden, heads * c.d_rel),
            norm=Module(scale=Weight((heads, c.d_rel))),
            proj=alone(Weight((c.d_rel, reach), "linear", transposed=True), Stream(rows=heads)),
        ),
        sink_proj=Linear(hidden, heads),
        core=Attention(heads, dim, dim, span),
        **gate,
        o_proj=Module(linear=Linear(heads * dim, hidden)),
    ).reading(
        "q_proj", "relative_position_bias", "sink_proj", *gate, k_proj="k_input_layernorm", v_proj="v_input_layernorm"
    )


HEARD = Module(message=Module()).reading(message="message_input")
"""What a gate mixes: the vector that is there, and a message."""


def message_gates(c: Inkling2TextConfig, at: Place, *names: str) -> dict[str, Node]:
    if not isinstance(c, Inkling2LoopTextConfig) or at.messages is None:
        return {}
    gate = Module(
        down_proj=Linear(2 * c.hidden_size, c.loop_gate_rank),
        forget_gate_proj=Linear(c.loop_gate_rank, c.hidden_size),
        message_gate_proj=Linear(c.loop_gate_rank, c.hidden_size),
    ).reading(message_gate_proj="down_proj")
    return dict.fromkeys(names, gate if at.messages else gate.never_run())


def decoder_layer(c: Inkling2TextConfig, at: Place) -> Module:
    hidden, full = c.hidden_size, at.kind == "hybrid"
    gates = message_gates(c, at, "q_message_gate", "k_message_gate", "v_message_gate")
    if full:
        norms: dict[str, Node] = {f"{name}_input_layernorm": Norm(hidden) for name in "qkv"}
        sources = {f"{name}_input_layernorm": f"{name}_message_gate" for name in "qkv"}
    else:  # one for all three, which differ where messages went into them: a gradient of one counts as all of theirs
        norms = {"input_layernorm": alone(Norm(hidden), Stream(rows=3)) if at.messages else Norm(hidden)}
        sources = {}
    if not at.messages:
        sources = dict.fromkeys(norms, "attention_input")
    return Module(
        attention_input=residual(hidden, at.attention_reads, 3 if full else 1) if at.attention_reads else None,
        heard=HEARD if at.messages else None,
        **gates,
        **norms,
        self_attn=self_attention(c, at.kind),
        post_attention_convolution=short_convolution(hidden, c.conv_kernel_size),
        mlp_input=residual(hidden, at.mlp_reads),
        **message_gates(c, at, "mlp_message_gate"),
        post_attention_layernorm=Norm(hidden),
        mlp=moe(hidden, c.moe_intermediate_size, c.n_routed_experts, c.num_experts_per_tok),
        post_mlp_convolution=short_convolution(hidden, c.conv_kernel_size),
    ).reading(**dict.fromkeys(gates, "heard"), **sources, self_attn=next(iter(norms)))


def whole(c: Inkling2TextConfig, layers: Layers, **parts: Node) -> Module:
    hidden, reads = c.hidden_size, (c.num_hidden_layers - 1) // c.n_layers_per_attn_res_block + 2
    model = Module(
        embed_tokens=normed_embedding(c),
        **parts,
        layers=layers,
        final_input=residual(hidden, reads),
        norm=Norm(hidden, "final_norm"),
    )
    return Module(model=model, lm_head=Linear(hidden, c.unpadded_vocab_size, kind="head"))


@register("inkling2_text", Inkling2TextConfig)
def inkling2_text(c: Inkling2TextConfig) -> Module:
    return whole(c, each(partial(decoder_layer, c), places(c)))


@register("inkling2_loop_text", Inkling2LoopTextConfig)
def inkling2_loop_text(c: Inkling2LoopTextConfig) -> Module:
    """Every run of the loop after the first begins anew from what came out of the layers before it, and takes in
    messages, which queries of its layers read out of the blocks that the run before has made."""
    first, end, layer = c.loop_layer_index_start, c.loop_layer_index_end, partial(decoder_layer, c)
    once = [at._replace(messages=False if first <= i < end else None) for i, at in enumerate(places(c))]
    again = each(layer, (at._replace(messages=True) for at in places(c))).cut(first, end)
    messages = residual(c.hidden_size, (end - first) // c.n_layers_per_attn_res_block, 4, end - first)
    run = Module(message_input=messages.sharing("model.message_input"), layers=again.sharing("model.layers"))
    run = run.reading(layers=str(first - 1))
    layers = each(layer, once).looped("model.layers", first, end - first, c.loop_num_passes, run)
    return whole(c, layers, message_input=messages.never_run())
