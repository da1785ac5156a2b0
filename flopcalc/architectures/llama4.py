"""Llama 4's text model: rotary layers attend inside chunks, every fourth layer without rotary
embedding to everything; MoE layers may alternate with dense ones of another width."""

from __future__ import annotations

from flopcalc.architectures.blocks import (
    Decoder,
    attention,
    causal_lm,
    check_top_k,
    check_types,
    decoder_layer,
    each,
    experts,
    mlp,
)
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Chunk, Full
from flopcalc.tree import Linear, Module


class Llama4TextConfig(Decoder):
    vocab_size: Size = 202048
    hidden_size: Size = 5120
    intermediate_size: Size = 8192
    intermediate_size_mlp: Size = 16384
    num_hidden_layers: Count = 48
    num_attention_heads: Size = 40
    num_key_value_heads: Size | None = 8
    head_dim: Size | None = 128
    num_experts_per_tok: Size = 1
    num_local_experts: Size = 16
    moe_layers: list[int] | None = None
    interleave_moe_layer_step: Size = 1
    no_rope_layers: list[int] | None = None
    no_rope_layer_interval: Size = 4
    attention_chunk_size: Size | None = 8192
    layer_types: list[str] | None = None
    attention_bias: bool = False

    def derive(self) -> None:
        super().derive()
        layers, step = self.num_hidden_layers, self.interleave_moe_layer_step
        if not self.no_rope_layers:  # 1: the layer has rotary embeddings
            self.no_rope_layers = [int((i + 1) % self.no_rope_layer_interval != 0) for i in range(layers)]
        if self.moe_layers is None:
            self.moe_layers = list(range(step - 1, layers, step))
        if self.layer_types is None:
            chunked = self.attention_chunk_size is not None
            self.layer_types = [
                "chunked_attention" if rope and chunked else "full_attention" for rope in self.no_rope_layers
            ]
        check_types("layer_types", self.layer_types, layers, ("full_attention", "chunked_attention"))
        if "chunked_attention" in self.layer_types and self.attention_chunk_size is None:
            raise ValueError("attention_chunk_size: found None, expected the chunk of the chunked layers")
        check_top_k(self.num_experts_per_tok, self.num_local_experts)


@register("llama4_text", Llama4TextConfig)
def llama4_text(c: Llama4TextConfig) -> Module:
    hidden, num_experts = c.hidden_size, c.num_local_experts
    sparse_mlp = Module(
        router=Linear(hidden, num_experts, kind="router"),
        experts=experts(hidden, c.intermediate_size, num_experts, c.num_experts_per_tok, transposed=True),
        shared_expert=mlp(hidden, c.intermediate_size),
    ).reading("router", "shared_expert")  # the router's scores scale what the experts read

    def layer(kind: tuple[str, bool]) -> Module:
        attends, sparse = kind
        span = Chunk(c.attention_chunk_size) if attends == "chunked_attention" else Full()
        return decoder_layer(
            hidden,
            self_attn=attention(c, span, bias=c.attention_bias),
            feed_forward=sparse_mlp if sparse else mlp(hidden, c.intermediate_size_mlp),
        )

    return causal_lm(c, each(layer, ((kind, i in c.moe_layers) for i, kind in enumerate(c.layer_types))))
