"""Fuyu: Persimmon without a tower; a matrix alone turns the pixels of a patch into a token."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import model_validator

from flopcalc.architectures.blocks import Nested, Part, multimodal_lm, part
from flopcalc.architectures.persimmon import PersimmonConfig
from flopcalc.architectures.towers import PATCHES
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module


class FuyuConfig(Nested):
    part_defaults: ClassVar[dict[str, dict[str, Any]]] = {"text_config": {"model_type": "persimmon"}}

    text_config: Part
    patch_size: Size = 30
    num_channels: Size = 3

    @model_validator(mode="before")
    @classmethod
    def _gather_text(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Published files hold the fields of the language model beside Fuyu's own."""
        flat = {name: fields[name] for name in PersimmonConfig.model_fields if name in fields}
        return {**fields, "text_config": fields.get("text_config") or flat}


@register("fuyu", FuyuConfig)
def fuyu(c: FuyuConfig) -> Module:
    pixels = c.patch_size * c.patch_size * c.num_channels
    patches = Linear(pixels, c.text_config.hidden_size, True, "patch_embedding")
    return multimodal_lm(c, part(c.text_config), vision_embed_tokens=Module(**{"": patches}).on(PATCHES))
