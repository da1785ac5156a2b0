"""GLM-5: latent attention that reads only the keys its indexer picks; with IndexShare (GLM-5.2) most
layers own no indexer and read what the last layer with one has picked."""

from __future__ import annotations

from typing import Any

from flopcalc.architectures.blocks import causal_lm, check_types, each
from flopcalc.architectures.deepseek import DeepseekV32Config, indexed_layer
from flopcalc.config import Count, Size, legacy
from flopcalc.estimators import register
from flopcalc.mtp import next_token_depth, register_mtp
from flopcalc.tree import Module


def scheduled_indexers(c: Any) -> list[str]:
    """Which layers own an indexer: as a pattern such as FSSF says, or else every `index_topk_freq`-th
    after the first ones."""
    if c.index_topk_pattern is not None:
        return [{"F": "full", "S": "shared"}.get(letter, letter) for letter in c.index_topk_pattern]
    skipped = [max(i - c.index_skip_topk_offset + 1, 0) for i in range(c.num_hidden_layers)]
    return ["shared" if i % max(c.index_topk_freq, 1) else "full" for i in skipped]


class GlmMoeDsaConfig(DeepseekV32Config):
    vocab_size: Size = 154880
    hidden_size: Size = 6144
    intermediate_size: Size = 12288
    num_hidden_layers: Count = 78
    num_attention_heads: Size = 64
    q_lora_rank: Size = 2048
    qk_nope_head_dim: Size = 192
    v_head_dim: Size = 256
    index_n_heads: Size = 32
    indexer_types: list[str] | None = None
    index_topk_pattern: str | list[str] | None = legacy()
    index_topk_freq: int = legacy(1)
    index_skip_topk_offset: int = legacy(2)

    def derive(self) -> None:
        super().derive()
        if self.indexer_types is None:
            self.indexer_types = scheduled_indexers(self)
        check_types("indexer_types", self.indexer_types, self.num_hidden_layers, ("full", "shared"))
        if self.indexer_types[:1] == ["shared"]:
            raise ValueError("indexer_types[0]: found 'shared', expected 'full': no layer before it picks keys")


@register("glm_moe_dsa", GlmMoeDsaConfig)
def glm_moe_dsa(c: GlmMoeDsaConfig) -> Module:
    def layer(kind: tuple[str, str]) -> Module:
        indexing, mlp = kind
        return indexed_layer(c, mlp, owns_indexer=indexing == "full")

    return causal_lm(c, each(layer, zip(c.indexer_types, c.mlp_layer_types, strict=True)))


@register_mtp("glm_moe_dsa")
def glm_moe_dsa_mtp(c: GlmMoeDsaConfig) -> Module:
    return next_token_depth(c.hidden_size, indexed_layer(c, "sparse"))
