"""LLaVA: any language model behind any tower, of which an inner layer is read."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from flopcalc.architectures.blocks import Nested, Part, multimodal_lm, part
from flopcalc.architectures.towers import PATCHES, FeatureLayers, two_linears
from flopcalc.estimators import register
from flopcalc.tree import Module

CLIP_LARGE = {
    "model_type": "clip_vision_model",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
}


class LlavaConfig(Nested, FeatureLayers):
    part_defaults: ClassVar = {"text_config": {"model_type": "llama"}, "vision_config": CLIP_LARGE}

    vision_config: Part
    vision_feature_layer: int | list[int] = -2
    vision_feature_select_strategy: Literal["default", "full"] = "default"
    multimodal_projector_bias: bool = True

    def derive(self) -> None:
        super().derive()
        self.tie_word_embeddings = self.tie_word_embeddings or getattr(self.text_config, "tie_word_embeddings", False)
        self.layers_read(self.vision_config)


@register("llava", LlavaConfig)
def llava(c: LlavaConfig) -> Module:
    tower = part(c.vision_config, read=c.layers_read(c.vision_config))
    stream = tower.stream or PATCHES
    if c.vision_feature_select_strategy == "default":  # the first token is not read
        stream = replace(stream, extra=stream.extra - 1)
    read, out = c.num_features * c.vision_config.hidden_size, c.text_config.hidden_size
    projector = two_linears(read, out, bias=c.multimodal_projector_bias).on(stream)
    return multimodal_lm(c, part(c.text_config), vision_tower=tower, multi_modal_projector=projector)
