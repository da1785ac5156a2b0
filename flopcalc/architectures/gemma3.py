"""Gemma 3, text alone or with a vision tower: five window layers to one of full attention, and
norms on query and key heads; pooled patches of SigLIP's tower."""

from __future__ import annotations

from math import isqrt
from typing import Any, ClassVar

from pydantic import Field

from flopcalc.architectures.blocks import (
    Nested,
    Part,
    attention,
    backbone,
    causal_lm,
    check_multiple,
    each,
    mlp,
    multimodal_lm,
    part,
)
from flopcalc.architectures.gemma2 import Gemma, sandwich_layer
from flopcalc.architectures.towers import check_vit
from flopcalc.config import Size, legacy
from flopcalc.estimators import register
from flopcalc.spans import Bidirectional, BidirectionalWindow, Span
from flopcalc.tree import Layers, Module, Norm, Stream, Weight


class MaybeBidirectional(Gemma):
    """A decoder that may read both ways, its window then being a reach to either side."""

    use_bidirectional_attention: Any = None
    live_object: Any = Field(default=None, validation_alias="_attn_implementation_internal", exclude=True)
    """Present in live config objects alone, whose window is already turned into a reach."""

    @property
    def bidirectional(self) -> bool:
        return bool(self.use_bidirectional_attention)

    def derive(self) -> None:
        read_from_file = "live_object" not in self.model_fields_set
        if self.bidirectional and self.sliding_window and read_from_file:
            self.sliding_window = self.sliding_window // 2 + 1
        super().derive()

    def span(self, kind: str) -> Span:
        if not self.bidirectional:
            return super().span(kind)
        return BidirectionalWindow(self.sliding_window) if kind == "sliding_attention" else Bidirectional()


class Gemma3TextConfig(MaybeBidirectional):
    vocab_size: Size = 262_208
    use_bidirectional_attention: bool | None = False
    sliding_window_pattern: Size = legacy(6)

    def derive(self) -> None:
        super().derive()
        check_multiple("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)

    def default_layer_types(self) -> list[str]:
        layers = range(1, self.num_hidden_layers + 1)
        return ["sliding_attention" if i % self.sliding_window_pattern else "full_attention" for i in layers]


class Gemma3Config(Nested):
    part_defaults: ClassVar = {"vision_config": {"model_type": "siglip_vision_model"}}

    tie_word_embeddings: bool = True
    text_config: Gemma3TextConfig = Field(default_factory=Gemma3TextConfig)
    vision_config: Part
    mm_tokens_per_image: Size = 256

    def derive(self) -> None:
        super().derive()
        check_vit(self.vision_config)

    @property
    def pooling(self) -> int:
        """How many patches make one token; one where images are too small to be pooled."""
        side: int = self.vision_config.image_size // self.vision_config.patch_size
        return max(side // isqrt(self.mm_tokens_per_image), 1) ** 2


def layers(c: Gemma3TextConfig) -> Layers:
    def layer(kind: str) -> Module:
        self_attn = attention(c, c.span(kind), bias=c.attention_bias, qk_norm=True)
        return sandwich_layer(c.hidden_size, self_attn, mlp(c.hidden_size, c.intermediate_size))

    return each(layer, c.layer_types)


@register("gemma3_text", Gemma3TextConfig)
def gemma3_text(c: Gemma3TextConfig) -> Module:
    return causal_lm(c, layers(c))


@register("gemma3", Gemma3Config)
def gemma3(c: Gemma3Config) -> Module:
    width, out = c.vision_config.hidden_size, c.text_config.hidden_size
    projector = Module(
        mm_soft_emb_norm=Norm(width), mm_input_projection_weight=Weight((width, out), "linear", transposed=True)
    ).on(Stream("image", every=c.pooling))
    return multimodal_lm(
        c,
        backbone(c.text_config, layers(c.text_config)),
        vision_tower=part(c.vision_config),
        multi_modal_projector=projector,
    )
