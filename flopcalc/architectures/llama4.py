"""Llama 4, alone or behind a tower with a pixel shuffle: rotary layers attend inside chunks, every
fourth layer without rotary embedding to everything; MoE layers may alternate with dense ones of another width."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.blocks import (
    Decoder,
    Multimodal,
    attention,
    backbone,
    check_top_k,
    check_types,
    decoder_layer,
    each,
    experts,
    lm_head,
    mlp,
    plain_mlp,
)
from flopcalc.architectures.towers import PATCHES, PATCHES_AND_CLASS, ViT, alone, split_attention
from flopcalc.config import Count, Size
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional, Chunk, Full
from flopcalc.tree import LayerNorm, Layers, Linear, Module, Stream, Weight


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


class Llama4VisionConfig(ViT):
    num_hidden_layers: Count = 34
    num_attention_heads: Size = 16
    intermediate_size: Size = 5632
    vision_output_dim: Size = 7680
    image_size: Size = 448
    patch_size: Size = 14
    pixel_shuffle_ratio: float = Field(default=0.5, gt=0, le=1)
    projector_input_dim: Size = 4096
    projector_output_dim: Size = 4096

    @property
    def shuffled(self) -> Stream:
        """The tokens after the pixel shuffle."""
        return Stream("image", every=round(1 / self.pixel_shuffle_ratio**2))


class Llama4Config(Multimodal):
    text_config: Llama4TextConfig = Field(default_factory=Llama4TextConfig)
    vision_config: Llama4VisionConfig = Field(default_factory=Llama4VisionConfig)


def language_model(c: Llama4TextConfig, under: str = "") -> Module:
    """The causal LM, whose parameters' names may begin with those of a model that it is `under`."""
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

    layers = each(layer, ((kind, i in c.moe_layers) for i, kind in enumerate(c.layer_types)))
    tied_to = f"{under}model.embed_tokens.weight" if c.tie_word_embeddings else None
    return Module(model=backbone(c, layers), lm_head=lm_head(c, tied_to))


@register("llama4_text", Llama4TextConfig)
def llama4_text(c: Llama4TextConfig) -> Module:
    return language_model(c)


def tower(c: Llama4VisionConfig) -> Module:
    """The tower; a class token follows the patches and is dropped behind the last layer."""
    width = c.hidden_size
    patch = Linear(c.num_channels * c.patch_size**2, width, kind="patch_embedding")
    layer = Module(
        input_layernorm=LayerNorm(width),
        self_attn=split_attention(width, c.num_attention_heads, Bidirectional(), out="o_proj"),
        post_attention_layernorm=LayerNorm(width),
        mlp=plain_mlp(width, c.intermediate_size, bias=True, names=("fc1", "fc2")),
    )
    shuffle = Module(
        fc1=Linear(c.intermediate_size, c.projector_input_dim),
        fc2=Linear(c.projector_output_dim, c.projector_output_dim),
    )
    return Module(
        patch_embedding=Module(linear=alone(patch, PATCHES)),
        class_embedding=Weight((width,)),
        positional_embedding_vlm=Weight((c.num_patches + 1, width), "lookup"),
        layernorm_pre=LayerNorm(width),
        model=Module(layers=Layers([layer] * c.num_hidden_layers)),
        layernorm_post=LayerNorm(width),
        vision_adapter=Module(mlp=shuffle).on(c.shuffled),
    ).on(PATCHES_AND_CLASS)


@register("llama4", Llama4Config)
def llama4(c: Llama4Config) -> Module:
    text, vision = c.text_config, c.vision_config
    return Module(
        vision_model=tower(vision),
        multi_modal_projector=Module(linear_1=Linear(vision.vision_output_dim, text.hidden_size)).on(vision.shuffled),
        language_model=language_model(text, under="language_model."),
    )
