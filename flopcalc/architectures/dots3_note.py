"""dots3 note: latent attention of two sizes, indexed in full layers and windowed in the others, each with a
gate on the heads and a norm on the rotated key; dense layers first and then experts."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from flopcalc.architectures.blocks import (
    Multimodal,
    SparseLayers,
    backbone,
    causal_lm,
    check_types,
    decoder_layer,
    each,
    mla,
    mlp,
    moe,
    multimodal_lm,
)
from flopcalc.architectures.deepseek import LatentMoe, indexer
from flopcalc.architectures.dots3_note_towers import (
    Dots3NoteAudioConfig,
    Dots3NoteVisionConfig,
    audio_tower,
    by_number,
    vision_tower,
    with_overrides,
)
from flopcalc.config import Count, Size, aliases, legacy
from flopcalc.estimators import register
from flopcalc.spans import Full, Span, TopK, Window
from flopcalc.tree import Layers, Linear, Module, Norm

INDEXED, FULL, SLIDING = "indexed_attention", "full_attention", "sliding_attention"


class Dots3NoteTextConfig(LatentMoe, SparseLayers):
    vocab_size: Size = 152064
    hidden_size: Size = 5120
    intermediate_size: Size = 13824
    moe_intermediate_size: Size = 1536
    num_hidden_layers: Count = 46
    q_lora_rank: Size = 1024
    n_shared_experts: Size = 1
    index_topk: Size = 2048
    index_head_dim: Size = 128
    index_n_heads: Size = 64
    sliding_window: Size | None = None
    shared_experts_intermediate_size: Size = aliases(
        "moe_shared_expert_intermediate_size", "shared_experts_intermediate_size", default=1536
    )
    layer_types: list[str] | None = None
    first_k_dense_replace: Count = legacy(1)
    moe_layer_freq: Size | list[int] = legacy(1)
    use_dsa: bool | None = legacy()
    use_sliding_window: bool = legacy(True)
    sliding_window_size: Size = legacy(512)
    swa_num_attention_heads: Size = legacy(64)
    swa_q_lora_rank: Size = legacy(1024)
    swa_kv_lora_rank: Size = legacy(1024)
    swa_head_dim: Size = legacy(256)
    swa_qk_nope_head_dim: Size = legacy(192)
    swa_qk_rope_head_dim: Size | None = legacy()
    swa_v_head_dim: Size = legacy(128)
    per_layer_config: dict[Any, dict[str, Any]] | None = legacy()

    @model_validator(mode="before")
    @classmethod
    def _read_overrides(cls, fields: Any) -> Any:
        read = with_overrides(fields)
        return read if read is fields else {**read, "use_dsa": None}

    def default_mlp_layer_types(self) -> list[str]:
        listed = self.moe_layer_freq
        if not isinstance(listed, list):
            return super().default_mlp_layer_types()
        if len(listed) != self.num_hidden_layers:
            raise ValueError(f"moe_layer_freq: found {len(listed)} entries, expected {self.num_hidden_layers}")
        return ["sparse" if i >= self.first_k_dense_replace and routed else "dense" for i, routed in enumerate(listed)]

    def derive(self) -> None:
        super().derive()
        layers = range(self.num_hidden_layers)
        dsa = self.use_dsa if "use_dsa" in self.model_fields_set or self.per_layer_config is not None else True
        if self.layer_types is None:
            full = [not self.use_sliding_window or i < 2 or i % 4 == 1 for i in layers]
            reads_all = FULL if dsa is False else INDEXED
            self.layer_types = [reads_all if all_keys else SLIDING for all_keys in full]
        if dsa is not None:
            old, new = (FULL, INDEXED) if dsa else (INDEXED, FULL)
            self.layer_types = [new if kind == old else kind for kind in self.layer_types]
        check_types("layer_types", self.layer_types, self.num_hidden_layers, (INDEXED, FULL, SLIDING))
        if self.sliding_window is None:
            self.sliding_window = self.sliding_window_size

    def of_layers(self) -> list[tuple[tuple[str, int], ...]]:
        """The fields in which each layer differs from the whole."""
        if self.per_layer_config is not None:
            given = by_number(self.per_layer_config)
            return [tuple(sorted(given.get(i, {}).items())) for i in range(self.num_hidden_layers)]
        rotated = self.swa_qk_rope_head_dim or self.swa_head_dim - self.swa_qk_nope_head_dim
        sliding = (
            ("num_attention_heads", self.swa_num_attention_heads),
            ("q_lora_rank", self.swa_q_lora_rank),
            ("kv_lora_rank", self.swa_kv_lora_rank),
            ("qk_nope_head_dim", self.swa_qk_nope_head_dim),
            ("qk_rope_head_dim", rotated),
            ("v_head_dim", self.swa_v_head_dim),
        )
        return [sliding if kind == SLIDING else () for kind in self.layer_types or []]

    def span(self, kind: str) -> Span:
        """What a layer of this type attends to."""
        return {INDEXED: TopK(self.index_topk), FULL: Full(), SLIDING: Window(self.sliding_window or 1)}[kind]


def dots3_note_layers(c: Dots3NoteTextConfig) -> Layers:
    hidden = c.hidden_size

    def layer(kind: tuple[str, str, tuple[tuple[str, int], ...]]) -> Module:
        attends, mlp_type, own = kind
        sizes = c.model_copy(update=dict(own))
        self_attn = mla(
            sizes,
            sizes.span(attends),
            k_rope_only_layernorm=Norm(sizes.qk_rope_head_dim, "head_norm"),
            indexer=indexer(sizes) if attends == INDEXED else None,
            after_core={"g_proj": Linear(hidden, sizes.num_attention_heads, kind="output_gate")},
        ).reading("g_proj", k_rope_only_layernorm="kv_a_proj_with_mqa")
        if mlp_type == "dense":
            return decoder_layer(hidden, self_attn=self_attn, mlp=mlp(hidden, c.intermediate_size))
        shared = mlp(hidden, c.shared_experts_intermediate_size * c.n_shared_experts)
        routed = moe(hidden, c.moe_intermediate_size, c.n_routed_experts, c.num_experts_per_tok, shared_experts=shared)
        return decoder_layer(hidden, self_attn=self_attn, mlp=routed)

    return each(layer, zip(c.layer_types or [], c.mlp_layer_types or [], c.of_layers(), strict=True))


@register("dots3_note_text", Dots3NoteTextConfig)
def dots3_note_text(c: Dots3NoteTextConfig) -> Module:
    return causal_lm(c, dots3_note_layers(c))


class Dots3NoteConfig(Multimodal):
    text_config: Dots3NoteTextConfig = Field(default_factory=Dots3NoteTextConfig)
    vision_config: Dots3NoteVisionConfig = Field(default_factory=Dots3NoteVisionConfig)
    audio_config: Dots3NoteAudioConfig = Field(default_factory=Dots3NoteAudioConfig)

    @model_validator(mode="before")
    @classmethod
    def _gather_text(cls, fields: Any) -> Any:
        """Published files hold the text model's fields beside those of the towers."""
        flat = isinstance(fields, dict) and fields.get("text_config") is None
        return {**fields, "text_config": fields} if flat else fields

    def derive(self) -> None:
        hidden = self.text_config.hidden_size
        for name, part in (("vision_config", self.vision_config), ("audio_config", self.audio_config)):
            if part.adapter_out_dim != hidden:
                raise ValueError(
                    f"{name}: adapter_out_dim: found {part.adapter_out_dim}, expected the text's hidden_size = {hidden}"
                )


@register("dots3_note", Dots3NoteConfig)
def dots3_note(c: Dots3NoteConfig) -> Module:
    return multimodal_lm(
        c,
        backbone(c.text_config, dots3_note_layers(c.text_config)),
        vision_tower=vision_tower(c.vision_config),
        audio_tower=audio_tower(c.audio_config),
    )
