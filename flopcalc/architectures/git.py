"""GIT: BERT's layers, causal, in front of whose text stand all vectors of CLIP's tower, that of the class
token too. Images have no tokens in the vocabulary, but their vectors count in a document's length."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.bert import BertStack, bert_layer, embeddings, encoder
from flopcalc.architectures.blocks import Multimodal, lm_head
from flopcalc.architectures.clip import ClipVisionConfig, clip_vision_model
from flopcalc.architectures.towers import PATCHES_AND_CLASS
from flopcalc.config import Count, Repeats, Size
from flopcalc.estimators import register
from flopcalc.tree import LayerNorm, Layers, Linear, Module, Weight


class GitVisionConfig(ClipVisionConfig):
    patch_size: Size = 16


class GitConfig(BertStack, Multimodal):
    vision_config: GitVisionConfig = Field(default_factory=GitVisionConfig)
    num_hidden_layers: Count = 6
    max_position_embeddings: Size = 1024
    num_image_with_embedding: Repeats | None = None
    tie_word_embeddings: bool = False


@register("git", GitConfig)
def git(c: GitConfig) -> Module:
    """Of several images, frames of a video, each has a vector of its time."""
    hidden, seen = c.hidden_size, c.vision_config.hidden_size
    tower = dict(clip_vision_model(c.vision_config).children)
    times = None
    if c.num_image_with_embedding is not None:
        times = Layers([Weight((1, 1, seen), "lookup")] * c.num_image_with_embedding)
    projection = Module(**{"0": Linear(seen, hidden, bias=True), "1": LayerNorm(hidden)})
    return Module(
        git=Module(
            image_encoder=Module(vision_model=Module(**{**tower, "post_layernorm": LayerNorm(seen)})).on(
                PATCHES_AND_CLASS
            ),
            img_temporal_embedding=times,
            visual_projection=Module(visual_projection=projection).on(PATCHES_AND_CLASS),
            embeddings=embeddings(c, hidden),
            encoder=encoder(c, bert_layer(c)),
        ),
        output=lm_head(c, "git.embeddings.word_embeddings.weight" if c.tie_word_embeddings else None, bias=True),
    )
