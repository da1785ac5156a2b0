"""SmolVLM and Idefics 3: any language model behind SigLIP's layers, whose patches are shuffled into fewer,
wider vectors for one matrix."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from flopcalc.architectures.blocks import Nested, lm_head, part
from flopcalc.architectures.siglip import siglip_tower
from flopcalc.architectures.towers import ViT
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.tree import Linear, Module, Stream


class SmolVLMVisionConfig(ViT):
    hidden_size: Size = 1152
    num_attention_heads: Size = 16
    patch_size: Size = 32


class SmolVLMConfig(Nested):
    part_defaults: ClassVar = {"text_config": {"model_type": "llama"}}

    vision_config: SmolVLMVisionConfig = Field(default_factory=SmolVLMVisionConfig)
    scale_factor: Size = 2


@register("idefics3", SmolVLMConfig)
@register("smolvlm", SmolVLMConfig)
def smolvlm(c: SmolVLMConfig) -> Module:
    text, merge = c.text_config, c.scale_factor**2
    projection = Module(proj=Linear(merge * c.vision_config.hidden_size, text.hidden_size))
    model = Module(
        vision_model=siglip_tower(c.vision_config),
        connector=Module(modality_projection=projection).on(Stream("image", every=merge)),
        text_model=part(text),
    )
    tied_to = "model.text_model.embed_tokens.weight" if c.tie_word_embeddings else None
    return Module(model=model, lm_head=lm_head(text, tied_to))
