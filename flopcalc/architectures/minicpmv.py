"""MiniCPM-V 2.6: a Qwen2 behind SigLIP's tower, which learned queries read. The structure is that of the
`modeling_minicpmv.py` and `resampler.py` beside its weights; each slice of an image is an image."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from flopcalc.architectures.blocks import Multimodal, backbone, lm_head
from flopcalc.architectures.qwen2 import Qwen2Config, qwen2_layers
from flopcalc.architectures.siglip import siglip_tower
from flopcalc.architectures.towers import PATCHES, ViT, alone, packed_attention
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.tree import LayerNorm, Linear, Module, Stream, Weight

SO400M: dict[str, int] = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "image_size": 980,
    "patch_size": 14,
}


class MiniCPMVConfig(Multimodal, Qwen2Config):
    version: Any = None
    vision_config: ViT = Field(default_factory=lambda: ViT(**SO400M))
    query_num: Size = 64
    drop_vision_last_layer: bool = True

    def derive(self) -> None:
        super().derive()
        if str(self.version) != "2.6":
            raise ValueError(
                f"version: found {self.version!r}, expected 2.6: other MiniCPM-V of this model_type have other "
                f"language models and towers, which the config does not name"
            )
        heads = self.hidden_size // 128
        if not heads or self.hidden_size % heads:
            raise ValueError(
                f"hidden_size: found {self.hidden_size}, expected a multiple of {heads or 128}: "
                f"the resampler has hidden_size // 128 heads"
            )


def resampler(width: int, out: int, queries: int) -> Module:
    """Learned queries over the patches of an image, which are widened first unless they are as wide."""
    asking = Stream("image", rows=0, extra=queries)
    attended = Module(ln_post=LayerNorm(out), proj=Weight((out, out), "linear", transposed=True))
    return (
        Module(
            query=Weight((queries, out), "lookup"),
            ln_q=alone(LayerNorm(out), asking),
            kv_proj=Linear(width, out) if width != out else None,
            ln_kv=LayerNorm(out),
            attn=packed_attention(out, out // 128, queries, "resampler.attn"),
            **{"": attended.on(asking)},
        )
        .on(PATCHES)
        .reading("kv_proj", ln_kv="kv_proj")
    )


@register("minicpmv", MiniCPMVConfig)
def minicpmv(c: MiniCPMVConfig) -> Module:
    vision, dropped = c.vision_config, int(c.drop_vision_last_layer)
    kept = vision.model_copy(update={"num_hidden_layers": max(vision.num_hidden_layers - dropped, 0)})
    tied_to = "llm.model.embed_tokens.weight" if c.tie_word_embeddings else None
    return Module(
        vpm=siglip_tower(kept),
        resampler=resampler(vision.hidden_size, c.hidden_size, c.query_num),
        llm=Module(model=backbone(c, qwen2_layers(c)), lm_head=lm_head(c, tied_to)),
    )
