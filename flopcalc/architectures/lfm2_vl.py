"""LFM2-VL: a LFM2 behind SigLIP 2's tower, whose patches are unshuffled into fewer, wider vectors."""

from __future__ import annotations

from typing import ClassVar

from flopcalc.architectures.blocks import Nested, Part, multimodal_lm, part
from flopcalc.architectures.siglip import Siglip2VisionConfig
from flopcalc.config import Size, legacy
from flopcalc.estimators import register
from flopcalc.tree import LayerNorm, Linear, Module, Stream


class Lfm2VlConfig(Nested):
    part_defaults: ClassVar = {
        "text_config": {"model_type": "lfm2"},
        "vision_config": {"model_type": "siglip2_vision_model"},
    }

    vision_config: Part
    projector_hidden_size: Size = 2560
    projector_bias: bool = True
    projector_use_layernorm: bool = True
    downsample_factor: Size = 2
    tie_word_embeddings: bool = True
    tie_embedding: bool | None = legacy()

    def derive(self) -> None:
        super().derive()
        if self.tie_embedding is not None:
            self.tie_word_embeddings = self.tie_embedding
        if not isinstance(self.vision_config, Siglip2VisionConfig):
            found = self.vision_config.read_as
            raise ValueError(f"vision_config: found a {found}, expected a siglip2_vision_model, which takes patches")


@register("lfm2_vl", Lfm2VlConfig)
def lfm2_vl(c: Lfm2VlConfig) -> Module:
    merge, width, bias = c.downsample_factor**2, c.projector_hidden_size, c.projector_bias
    joined = merge * c.vision_config.hidden_size
    projector = Module(
        layer_norm=LayerNorm(joined) if c.projector_use_layernorm else None,
        linear_1=Linear(joined, width, bias),
        linear_2=Linear(width, c.text_config.hidden_size, bias),
    ).on(Stream("image", every=merge))
    return multimodal_lm(c, part(c.text_config), vision_tower=part(c.vision_config), multi_modal_projector=projector)
