"""Llama 3.2 Vision: layers of cross-attention to the image among those of self-attention. They run only where
there is an image; what a text meets in them depends on which images it has, so that images are not counted."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.blocks import (
    Decoder,
    Multimodal,
    attention,
    backbone,
    decoder_layer,
    each,
    mlp,
    multimodal_lm,
    plain_mlp,
)
from flopcalc.architectures.towers import split_attention
from flopcalc.config import Count, Schema, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional, Full
from flopcalc.tree import Conv, Embedding, LayerNorm, Layers, Linear, Module, Node, Weight


class MllamaTextConfig(Decoder):
    vocab_size: Size = 128256
    intermediate_size: Size = 14_336
    num_hidden_layers: Count = 40
    num_key_value_heads: Size = 8
    cross_attention_layers: list[int] = Field(default=[3, 8, 13, 18, 23, 28, 33, 38])

    def derive(self) -> None:
        super().derive()
        self.head_dim = self.hidden_size // self.num_attention_heads


class MllamaVisionConfig(Schema):
    hidden_size: Size = 1280
    num_hidden_layers: Count = 32
    num_global_layers: Count = 8
    attention_heads: Size = aliases("num_attention_heads", "attention_heads", default=16)
    num_channels: Size = 3
    intermediate_size: Size = 5120
    vision_output_dim: Size = 7680
    image_size: Size = 448
    patch_size: Size = 14
    max_num_tiles: Size = 4
    supported_aspect_ratios: list[list[int]] = Field(
        default=[[1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1]]
    )


class MllamaConfig(Multimodal):
    tie_word_embeddings: bool = legacy(False)
    """Read, yet the class never ties."""
    text_config: MllamaTextConfig = Field(default_factory=MllamaTextConfig)
    vision_config: MllamaVisionConfig = Field(default_factory=MllamaVisionConfig)


def language_model(c: MllamaTextConfig) -> Module:
    def layer(crosses: bool) -> Module:
        if not crosses:
            return decoder_layer(
                c.hidden_size, self_attn=attention(c, Full()), mlp=mlp(c.hidden_size, c.intermediate_size)
            )
        return decoder_layer(
            c.hidden_size,
            cross_attn=attention(c, Full(), qk_norm=True),
            cross_attn_attn_gate=Weight((1,)),
            mlp=mlp(c.hidden_size, c.intermediate_size),
            cross_attn_mlp_gate=Weight((1,)),
        ).never_run()

    layers = each(layer, (i in c.cross_attention_layers for i in range(c.num_hidden_layers)))
    rows = Embedding(c.vocab_size + 8, c.hidden_size)  # more than the head has, for the image's token
    return backbone(c, layers).replacing(embed_tokens={"embed_tokens": rows})


def tower(c: MllamaVisionConfig) -> Module:
    width, ratios = c.hidden_size, len(c.supported_aspect_ratios) + 1
    places = (c.image_size // c.patch_size) ** 2 + 1
    tiles = Module(gate=Weight((1,)), embedding=Embedding(ratios, c.max_num_tiles * width, kind="lookup"))

    def layers(count: int, **gates: Node) -> Module:
        layer = decoder_layer(
            width,
            norm=LayerNorm,
            self_attn=split_attention(width, c.attention_heads, Bidirectional(), bias=False, out="o_proj"),
            mlp=plain_mlp(width, c.intermediate_size, bias=True, names=("fc1", "fc2")),
            **gates,
        )
        return Module(layers=Layers([layer] * count))

    return Module(
        class_embedding=Weight((width,)),
        patch_embedding=Conv(c.num_channels, width, (c.patch_size, c.patch_size), kind="patch_embedding"),
        pre_tile_positional_embedding=tiles,
        gated_positional_embedding=Module(
            gate=Weight((1,)),
            embedding=Weight((places, width), "lookup"),
            tile_embedding=Embedding(ratios, c.max_num_tiles * places * width, kind="lookup"),
        ),
        layernorm_pre=LayerNorm(width),
        transformer=layers(c.num_hidden_layers),
        layernorm_post=LayerNorm(width),
        post_tile_positional_embedding=tiles,
        global_transformer=layers(c.num_global_layers, gate_attn=Weight((1,)), gate_ffn=Weight((1,))),
    ).never_run()


@register("mllama", MllamaConfig)
def mllama(c: MllamaConfig) -> Module:
    projector = Linear(c.vision_config.vision_output_dim, c.text_config.hidden_size, True)
    return multimodal_lm(
        c.model_copy(update={"tie_word_embeddings": False}),
        language_model(c.text_config),
        vision_model=tower(c.vision_config),
        multi_modal_projector=Module(**{"": projector}).never_run(),
    )
