"""Mistral Small 3.1 and Ministral 3: a Mistral behind Pixtral's tower, whose patches a matrix merges."""

from __future__ import annotations

from typing import ClassVar

from flopcalc.architectures.blocks import Nested, Part, multimodal_lm, part
from flopcalc.architectures.towers import FeatureLayers, alone, merged, two_linears
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module, Norm

MISTRAL_SMALL = {
    "model_type": "mistral",
    "vocab_size": 131072,
    "hidden_size": 5120,
    "intermediate_size": 32768,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "sliding_window": None,
}


class Mistral3Config(Nested, FeatureLayers):
    part_defaults: ClassVar = {
        "text_config": MISTRAL_SMALL,
        "vision_config": {"model_type": "pixtral", "image_size": 1540, "patch_size": 14},
    }

    tie_word_embeddings: bool = True
    vision_config: Part
    spatial_merge_size: Size = 2
    multimodal_projector_bias: bool = False

    def derive(self) -> None:
        super().derive()
        self.layers_read(self.vision_config)


@register("mistral3", Mistral3Config)
def mistral3(c: Mistral3Config) -> Module:
    width, out = c.vision_config.hidden_size, c.text_config.hidden_size
    tower = part(c.vision_config, read=c.layers_read(c.vision_config))
    projector = two_linears(
        c.num_features * width,
        out,
        bias=c.multimodal_projector_bias,
        norm=alone(Norm(width), tower.stream),
        patch_merger=Module(merging_layer=Linear(width * c.spatial_merge_size**2, width)),
    ).on(merged(c))
    return multimodal_lm(c, part(c.text_config), vision_tower=tower, multi_modal_projector=projector)
