"""Qwen3-VL, dense and MoE: Qwen3 beside a tower whose inner layers feed mergers of their own (deepstack)."""

from __future__ import annotations

from pydantic import Field

from flopcalc.architectures.blocks import Multimodal, backbone, causal_lm, multimodal_lm
from flopcalc.architectures.qwen3 import Qwen3Config, Qwen3MoeConfig, qwen3_layers, qwen3_moe_layers
from flopcalc.architectures.towers import Qwen3VisionConfig, patch_merger, qwen3_tower
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.tree import Layers, Module


class Qwen3VLTextConfig(Qwen3Config):
    use_sliding_window: bool = legacy(False)
    sliding_window: Count | None = legacy()
    max_window_layers: Count = legacy(28)
    layer_types: list[str] | None = legacy()

    def derive(self) -> None:
        self.layer_types = self.sliding_window = None  # the model knows full attention alone
        super().derive()


class Qwen3VLMoeTextConfig(Qwen3MoeConfig):
    intermediate_size: Size = 5632
    num_attention_heads: Size = 16
    num_key_value_heads: Size | None = 16
    moe_intermediate_size: Size = 1408
    num_experts: Count = aliases("num_experts", "num_local_experts", default=60)
    num_experts_per_tok: Size = 4
    tie_word_embeddings: bool = True
    use_sliding_window: bool = legacy(False)
    sliding_window: Count | None = legacy()

    def derive(self) -> None:
        self.use_sliding_window = False
        super().derive()


class DeepstackVisionConfig(Qwen3VisionConfig):
    deepstack_visual_indexes: list[int] = Field(default=[8, 16, 24])


class Qwen3VLConfig(Multimodal):
    text_config: Qwen3VLTextConfig = Field(default_factory=Qwen3VLTextConfig)
    vision_config: DeepstackVisionConfig = Field(default_factory=DeepstackVisionConfig)


class Qwen3VLMoeConfig(Multimodal):
    text_config: Qwen3VLMoeTextConfig = Field(default_factory=Qwen3VLMoeTextConfig)
    vision_config: DeepstackVisionConfig = Field(default_factory=DeepstackVisionConfig)


def deepstack_tower(c: DeepstackVisionConfig) -> Module:
    """The tower with one more merger for each layer whose output the language model takes."""
    merger = patch_merger(c, c.hidden_size, c.out_hidden_size, norm_after=True)
    return qwen3_tower(c, deepstack_merger_list=Layers([merger] * len(c.deepstack_visual_indexes)))


@register("qwen3_vl_text", Qwen3VLTextConfig)
def qwen3_vl_text(c: Qwen3VLTextConfig) -> Module:
    return causal_lm(c, qwen3_layers(c))


@register("qwen3_vl_moe_text", Qwen3VLMoeTextConfig)
def qwen3_vl_moe_text(c: Qwen3VLMoeTextConfig) -> Module:
    return causal_lm(c, qwen3_moe_layers(c))


@register("qwen3_vl", Qwen3VLConfig)
def qwen3_vl(c: Qwen3VLConfig) -> Module:
    text = backbone(c.text_config, qwen3_layers(c.text_config))
    return multimodal_lm(c, text, visual=deepstack_tower(c.vision_config))


@register("qwen3_vl_moe", Qwen3VLMoeConfig)
def qwen3_vl_moe(c: Qwen3VLMoeConfig) -> Module:
    text = backbone(c.text_config, qwen3_moe_layers(c.text_config))
    return multimodal_lm(c, text, visual=deepstack_tower(c.vision_config))
