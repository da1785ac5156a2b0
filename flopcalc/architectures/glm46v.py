"""GLM-4.6V: the tower of GLM-4.1V beside the language model that its text_config names."""

from __future__ import annotations

from typing import ClassVar

from flopcalc.architectures.blocks import Nested, Part, multimodal_lm, part
from flopcalc.architectures.towers import PatchTower
from flopcalc.estimators import register
from flopcalc.tree import Module


class Glm46VConfig(Nested):
    part_defaults: ClassVar = {
        "text_config": {"model_type": "glm4v_text"},
        "vision_config": {"model_type": "glm4v_vision"},
    }

    vision_config: Part

    def derive(self) -> None:
        super().derive()
        if not isinstance(self.vision_config, PatchTower):
            raise ValueError(f"vision_config: found a {self.vision_config.read_as}, expected a tower of patches")


@register("glm46v", Glm46VConfig)
def glm46v(c: Glm46VConfig) -> Module:
    return multimodal_lm(c, part(c.text_config), visual=part(c.vision_config))
