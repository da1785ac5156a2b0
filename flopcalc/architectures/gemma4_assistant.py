"""The drafters of Gemma 4: they read the embedding and the last hidden state of the model that they draft for,
and attend to its keys and values, having none of their own. Every token counts as drafted once."""

from __future__ import annotations

from typing import Any, ClassVar

from flopcalc.architectures.blocks import Nested, Part, check_multiple, lm_head, part
from flopcalc.architectures.gemma4 import Gemma4Decoder, Gemma4TextConfig
from flopcalc.architectures.towers import alone
from flopcalc.config import Size
from flopcalc.estimators import register
from flopcalc.tree import NEVER, Linear, Module, Node, Weight


class Gemma4AssistantConfig(Nested):
    part_defaults: ClassVar[dict[str, dict[str, Any]]] = {"text_config": {"model_type": "gemma4_text"}}

    text_config: Part
    tie_word_embeddings: bool = True
    backbone_hidden_size: Size = 1536
    use_ordered_embeddings: bool = False
    num_centroids: Size = 2048
    centroid_intermediate_top_k: Size = 32

    def derive(self) -> None:
        super().derive()
        text = self.text_config
        if not isinstance(text, Gemma4Decoder):
            raise ValueError(f"text_config: found a {text.read_as}, expected a text model of Gemma 4")
        text.num_kv_shared_layers = text.num_kv_shared_layers or text.num_hidden_layers
        if isinstance(text, Gemma4TextConfig):
            layers = text.num_hidden_layers
            for name, expected in (
                ("hidden_size_per_layer_input", 0),
                ("vocab_size_per_layer_input", 0),
                ("enable_moe_block", False),
                ("use_double_wide_mlp", False),
                ("num_kv_shared_layers", layers),
            ):
                if getattr(text, name) != expected:
                    raise ValueError(f"text_config.{name}: found {getattr(text, name)}, expected {expected}")
        if self.use_ordered_embeddings:
            check_multiple("vocab_size", text.vocab_size, "num_centroids", self.num_centroids)
            if self.centroid_intermediate_top_k > self.num_centroids:
                raise ValueError(
                    f"centroid_intermediate_top_k: found {self.centroid_intermediate_top_k}, "
                    f"expected at most num_centroids = {self.num_centroids}"
                )


class Gemma4UnifiedAssistantConfig(Gemma4AssistantConfig):
    part_defaults: ClassVar[dict[str, dict[str, Any]]] = {"text_config": {"model_type": "gemma4_unified_text"}}

    backbone_hidden_size: Size = 3840


@register("gemma4_unified_assistant", Gemma4UnifiedAssistantConfig)
@register("gemma4_assistant", Gemma4AssistantConfig)
def gemma4_assistant(c: Gemma4AssistantConfig) -> Module:
    hidden = c.text_config.hidden_size
    tied_to = "model.embed_tokens.weight" if c.tie_word_embeddings else None
    head: Node = lm_head(c.text_config, tied_to)
    ordered = None
    if c.use_ordered_embeddings:  # the rows of the head that belong to the nearest centroids
        rows = c.text_config.vocab_size // c.num_centroids * c.centroid_intermediate_top_k
        ordered = Module(
            centroids=Linear(hidden, c.num_centroids),
            picked=Weight((rows, hidden), "head", tied_to=tied_to or "lm_head.weight"),
        ).reading("centroids", "picked")
        head = alone(head, NEVER)
    return Module(
        pre_projection=Linear(2 * c.backbone_hidden_size, hidden),
        model=part(c.text_config),
        post_projection=Linear(hidden, c.backbone_hidden_size),
        lm_head=head,
        masked_embedding=ordered,
    ).reading(post_projection="model", lm_head="model", masked_embedding="model")
