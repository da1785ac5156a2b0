"""Phi-3 Vision and Phi-3.5 Vision: Phi-3 behind CLIP's large tower, which looks at an image cut into crops and at
the whole of it. The structure is that of the `modeling_phi3_v.py` and `image_embedding_phi3_v.py` beside their
weights."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator

from flopcalc.architectures.blocks import with_head
from flopcalc.architectures.clip import ClipVisionConfig, clip_tower
from flopcalc.architectures.llava import CLIP_LARGE
from flopcalc.architectures.phi3 import Phi3Config, phi3_layers
from flopcalc.architectures.towers import layers_until
from flopcalc.config import Schema
from flopcalc.estimators import register
from flopcalc.spans import BidirectionalChunk
from flopcalc.tree import Embedding, Linear, Module, Norm, Stream, Weight

CLIP = ClipVisionConfig.read("clip_vision_model", CLIP_LARGE)


class ImageProcessor(Schema):
    """The one tower that the published code takes."""

    name: Literal["clip_vision_model"]
    model_name: Literal["openai/clip-vit-large-patch14-336"]
    image_dim_out: Literal[1024]
    layer_idx: int = -2
    type_feature: Literal["patch"] = "patch"

    def derive(self) -> None:
        layers_until("layer_idx", [self.layer_idx], CLIP.num_hidden_layers)


class EmbeddingLayer(Schema):
    """The one way into the language model that published files take."""

    projection_cls: Literal["mlp"]
    use_hd_transform: Literal[True]
    with_learnable_separator: Literal[True]


class Phi3VConfig(Phi3Config):
    img_processor: ImageProcessor | None = None
    embd_layer: EmbeddingLayer | None = None

    @field_validator("embd_layer", mode="before")
    @classmethod
    def _no_object(cls, layer: Any) -> Any:
        """Anything but an object, such as 'default', stands for text alone."""
        return layer if isinstance(layer, dict) else None

    def derive(self) -> None:
        super().derive()
        if self.embd_layer is not None and self.img_processor is None:
            raise ValueError("img_processor: found None, expected the tower that embd_layer is for")


def image_embedding(c: ImageProcessor, hidden: int) -> Module:
    """CLIP reads each crop by itself. Crops are then put together, four patches merged into a token, each row of
    tokens and the whole ended by one more."""
    side, joined = CLIP.image_size // CLIP.patch_size, 4 * c.image_dim_out
    crop, rows = side**2, side // 2
    tower = clip_tower(
        CLIP,
        layers_until("layer_idx", [c.layer_idx], CLIP.num_hidden_layers),
        patches=Stream("image", extra=crop),
        tokens=Stream("image", every=crop, rows=crop + 1, extra=crop + 1),
        images=Stream("image", every=crop, extra=1),
        span=BidirectionalChunk(crop + 1),
    )
    projected = Module(
        glb_GN=Weight((1, 1, joined), "lookup"),
        sub_GN=Weight((1, 1, 1, joined), "lookup"),
        img_projection=Module(**{"0": Linear(joined, hidden, True), "2": Linear(hidden, hidden, True)}),
    )
    tokens = Stream("image", every=4, extra=rows * (rows + 1) + 1, row=2)
    return Module(img_processor=Module(vision_model=tower), **{"": projected.on(tokens)})


@register("phi3_v", Phi3VConfig)
def phi3_v(c: Phi3VConfig) -> Module:
    """Images are (1, height, width) in patches of the crops that they are cut into."""
    looks = c.img_processor is not None and c.embd_layer is not None
    body = Module(
        embed_tokens=Embedding(c.vocab_size, c.hidden_size),
        vision_embed_tokens=image_embedding(c.img_processor, c.hidden_size) if looks else None,
        layers=phi3_layers(c),
        norm=Norm(c.hidden_size, "final_norm"),
    )
    return with_head(c, body)
