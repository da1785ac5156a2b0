"""InternVL 1.5 to 3.5 as first published: a whole language model behind InternViT, whose patches are shuffled into
fewer, wider tokens. The structure is that of the `modeling_internvl_chat.py` beside its weights; each tile of an
image is an image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from flopcalc.architectures.blocks import Nested, plain_mlp
from flopcalc.architectures.towers import (
    PATCHES,
    PATCHES_AND_CLASS,
    ViT,
    alone,
    encoder_layers,
    layers_until,
    qkv_attention,
)
from flopcalc.config import Count, Size
from flopcalc.estimators import ESTIMATORS, register
from flopcalc.spans import Bidirectional
from flopcalc.tree import Conv, LayerNorm, Linear, Module, Node, Norm, Stream, Weight

LANGUAGE_MODELS = ("gpt_oss", "internlm2", "llama", "phi3", "qwen2", "qwen3", "qwen3_moe")


class InternVisionConfig(ViT):
    hidden_size: Size = 3200
    intermediate_size: Size = 12800
    num_hidden_layers: Count = 48
    num_attention_heads: Size = 25
    patch_size: Size = 14
    qkv_bias: bool = False
    qk_normalization: bool = True
    norm_type: Literal["layer_norm", "rms_norm"] = "rms_norm"


class InternVLChatConfig(Nested):
    part_defaults: ClassVar = {"text_config": {"model_type": "llama"}}

    vision_config: InternVisionConfig = Field(default_factory=InternVisionConfig)
    select_layer: int = -1
    downsample_ratio: float = Field(default=0.5, gt=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _find_language_model(cls, fields: Any) -> Any:
        """It stands in llm_config, which names one of the types that the published code builds."""
        if not isinstance(fields, dict):
            return fields
        found = fields.get("llm_config")
        model_type = found.get("model_type") if isinstance(found, dict) else found
        if model_type not in LANGUAGE_MODELS:
            raise ValueError(
                f"llm_config.model_type: found {model_type!r}, expected one of {', '.join(LANGUAGE_MODELS)}"
            )
        return {**fields, "text_config": found}

    def derive(self) -> None:
        super().derive()
        layers_until("select_layer", [self.select_layer], self.vision_config.num_hidden_layers)

    @property
    def merge(self) -> int:
        """How many patches make one token."""
        return int(1 / self.downsample_ratio) ** 2


def tower(c: InternVisionConfig, select: int) -> Module:
    width, read = c.hidden_size, layers_until("select_layer", [select], c.num_hidden_layers)

    def norm() -> Node:
        return LayerNorm(width) if c.norm_type == "layer_norm" else Norm(width)

    normed = {name: Norm(width, "head_norm") for name in ("q_norm", "k_norm") if c.qk_normalization}
    attn = qkv_attention(width, c.num_attention_heads, Bidirectional(), bias=c.qkv_bias, out_bias=True, **normed)
    layer = Module(
        norm1=norm(),
        attn=attn,
        ls1=Weight((width,)),
        norm2=norm(),
        mlp=plain_mlp(width, c.intermediate_size, bias=True, names=("fc1", "fc2")),
        ls2=Weight((width,)),
    )
    patch = Conv(c.num_channels, width, (c.patch_size, c.patch_size), True, "patch_embedding")
    return Module(
        embeddings=Module(
            class_embedding=Weight((1, 1, width)),
            patch_embedding=alone(patch, PATCHES),
            position_embedding=Weight((1, c.num_patches + 1, width), "lookup"),
        ).reading("patch_embedding"),
        encoder=Module(layers=encoder_layers(layer, c.num_hidden_layers, read)),
    ).on(PATCHES_AND_CLASS)


def language_model(c: Any) -> Module:
    """The causal LM with its own head, one level deeper."""
    whole = ESTIMATORS[c.read_as].build(c)
    heads = {
        name: {name: replace(child, tied_to=f"language_model.{child.tied_to}")}
        for name, child in whole.children
        if isinstance(child, Linear) and child.tied_to is not None
    }
    return whole.replacing(**heads)


@register("internvl_chat", InternVLChatConfig)
def internvl_chat(c: InternVLChatConfig) -> Module:
    read, hidden = c.merge * c.vision_config.hidden_size, c.text_config.hidden_size
    projector = {"0": LayerNorm(read), "1": Linear(read, hidden, True), "3": Linear(hidden, hidden, True)}
    return Module(
        vision_model=tower(c.vision_config, c.select_layer),
        mlp1=Module(**projector).on(Stream("image", every=c.merge)),
        language_model=language_model(c.text_config),
    )
