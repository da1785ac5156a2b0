"""Qwen4-Exp (Qwen3.8 Flash-Next): Qwen3.5's layers between gated residual streams; the attending ones
read the blocks of keys that an indexer picks, and some layers add embeddings of hashed n-grams."""

from __future__ import annotations

from functools import cache
from math import ceil, isqrt
from typing import Annotated

from pydantic import Field

from flopcalc.architectures.blocks import (
    Multimodal,
    attention,
    check_multiple,
    each,
    lm_head,
    multimodal_lm,
    shared_moe,
)
from flopcalc.architectures.qwen3_5 import Qwen3_5MoeTextConfig, delta_net
from flopcalc.architectures.towers import Qwen3VisionConfig, qwen3_tower
from flopcalc.config import Repeats, Size
from flopcalc.estimators import register
from flopcalc.spans import Blocks, Compressed
from flopcalc.tree import Conv1d, Embedding, IndexScores, Linear, Module, Norm

INDEXER_FIELDS = ("indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio")


class Qwen4ExpTextConfig(Qwen3_5MoeTextConfig):
    attending_type = "indexed_attention"

    num_experts: Size = 512
    num_experts_per_tok: Size = 10
    hc_count: Size = 4
    hc_lowrank: Size = 320
    indexer_n_heads: Size | None = None
    indexer_kv_heads: Size | None = None
    indexer_head_dim: Size | None = None
    indexer_budget: Size | None = None
    indexer_compress_ratio: Size | None = None
    ple_layer_ids: list[Size] | None = None
    ple_embed_dim: Size | None = None
    ple_conv_kernel_size: Size = 4
    ngram_size: Repeats = 3
    heads_per_ngram: Repeats = 8
    ngram_vocab_size_base: Annotated[int, Field(gt=0, le=2**32)] = 20_000_000  # primes are looked for from here on
    make_ngram_vocab_size_divisible_by: Size = 128

    def derive(self) -> None:
        if self.layer_types is not None:  # published files call the indexed layers full_attention
            attends = self.attending_type
            self.layer_types = [attends if kind == "full_attention" else kind for kind in self.layer_types]
        super().derive()
        if self.attending_type in self.layer_types:
            self._check_indexer()
        self.ple_layer_ids = sorted(set(self.ple_layer_ids or []))
        self.ple_embed_dim = self.ple_embed_dim or self.hidden_size
        if self.ple_layer_ids:
            self._check_ple()

    def _check_indexer(self) -> None:
        for field in INDEXER_FIELDS:
            if getattr(self, field) is None:
                raise ValueError(f"{field}: found None, expected the indexer of the {self.attending_type} layers")
        if self.indexer_kv_heads != 1:
            raise ValueError(f"indexer_kv_heads: found {self.indexer_kv_heads}, expected 1")
        check_multiple("indexer_budget", self.indexer_budget, "indexer_compress_ratio", self.indexer_compress_ratio)

    def _check_ple(self) -> None:
        if self.ngram_size < 2:
            raise ValueError(f"ngram_size: found {self.ngram_size}, expected at least 2")
        check_multiple("ple_embed_dim", self.ple_embed_dim, "n-gram heads", self.ngram_heads)
        for number in self.ple_layer_ids:
            if number > self.num_hidden_layers or self.layer_types[number - 1] != "linear_attention":
                raise ValueError(f"ple_layer_ids: found {number}, expected numbers (from 1) of linear_attention layers")

    @property
    def ngram_heads(self) -> int:
        return (self.ngram_size - 1) * self.heads_per_ngram


class Qwen4ExpConfig(Multimodal):
    text_config: Qwen4ExpTextConfig = Field(default_factory=Qwen4ExpTextConfig)
    vision_config: Qwen3VisionConfig = Field(default_factory=Qwen3VisionConfig)


@cache
def primes_from(start: int, skip: int, count: int) -> tuple[int, ...]:
    """`count` primes from `start` on, after leaving out the first `skip`."""
    found: list[int] = []
    candidate = start
    while len(found) < skip + count:
        if candidate > 1 and all(candidate % divisor for divisor in range(2, isqrt(candidate) + 1)):
            found.append(candidate)
        candidate += 1
    return tuple(found[skip:])


def ngram_rows(c: Qwen4ExpTextConfig, index: int) -> int:
    """Rows of the n-gram table of the `index`-th layer that has one: each head hashes into a prime
    number of rows of its own, and the heads of all layers have different primes."""
    divisor = c.make_ngram_vocab_size_divisible_by
    rows = sum(primes_from(c.ngram_vocab_size_base, index * c.ngram_heads, c.ngram_heads))
    return ceil(rows / divisor) * divisor


def per_layer_embedding(c: Qwen4ExpTextConfig, index: int) -> Module:
    """Embeddings of the n-grams that end at a token, gated by its residual streams, then convolved."""
    width = c.hc_count * c.hidden_size
    table = Embedding(ngram_rows(c, index), c.ple_embed_dim // c.ngram_heads, kind="lookup")
    return Module(
        ple_embedding=Module(ngram_embedding=table),
        key_proj=Linear(c.ple_embed_dim, width),
        norm_key=Norm(width),
        value_proj=Linear(c.ple_embed_dim, c.hidden_size),
        norm_query=Norm(width),
        norm_conv=Norm(width),
        conv1d=Conv1d(width, c.ple_conv_kernel_size),
    ).reading("norm_query", value_proj="ple_embedding")


def gated_residual(c: Qwen4ExpTextConfig, *, injects: bool = True) -> Module:
    """Reads one vector out of the residual streams by low-rank gates and, for a layer's half, says
    how much of its output goes into each stream. The streams themselves mix elementwise."""
    width = c.hc_count * c.hidden_size
    return Module(
        hc_norm=Norm(width),
        input_mix_weight_down=Linear(width, c.hc_lowrank, kind="stream_map"),
        input_mix_weight_up=Linear(c.hc_lowrank, width, kind="stream_map"),
        block_inject_weight=Linear(width, c.hc_count, kind="stream_map") if injects else None,
    ).reading(block_inject_weight="hc_norm")


def indexed_attention(c: Qwen4ExpTextConfig) -> Module:
    """Gated attention over the tokens of the blocks with the best scores. The projection sees every
    token; only the scores, and the norm of the pooled keys, work on blocks. Indices come out of the
    indexer, so no gradient goes in."""
    dim, block = c.indexer_head_dim, c.indexer_compress_ratio
    indexer = Module(
        index_qk_proj=Linear(c.hidden_size, (c.indexer_n_heads + c.indexer_kv_heads) * dim),
        q_layernorm=Norm(dim),
        k_layernorm=Norm(dim),
        scores=IndexScores(c.indexer_n_heads, dim, Compressed(block)),
    ).as_indexer()
    span = Blocks(c.indexer_budget, block)
    return attention(c, span, bias=c.attention_bias, qk_norm=True, gate=True, indexer=indexer)


def decoder(c: Qwen4ExpTextConfig) -> Module:
    def layer(kind: tuple[str, int | None]) -> Module:
        attends, ple = kind
        return Module(
            ple=None if ple is None else per_layer_embedding(c, ple),
            attn_hyper_connection=gated_residual(c),
            linear_attn=delta_net(c) if attends == "linear_attention" else None,
            self_attn=indexed_attention(c) if attends == "indexed_attention" else None,
            mlp_hyper_connection=gated_residual(c),
            mlp=shared_moe(c),
        )

    ple = {number - 1: index for index, number in enumerate(c.ple_layer_ids)}
    return Module(
        embed_tokens=Embedding(c.vocab_size, c.hidden_size),
        layers=each(layer, ((kind, ple.get(i)) for i, kind in enumerate(c.layer_types))),
        hyper_connection_mixer=gated_residual(c, injects=False),
    )


@register("qwen4_exp_text", Qwen4ExpTextConfig)
def qwen4_exp_text(c: Qwen4ExpTextConfig) -> Module:
    return Module(model=decoder(c), lm_head=lm_head(c, "model.embed_tokens.weight" if c.tie_word_embeddings else None))


@register("qwen4_exp", Qwen4ExpConfig)
def qwen4_exp(c: Qwen4ExpConfig) -> Module:
    return multimodal_lm(c, decoder(c.text_config), visual=qwen3_tower(c.vision_config))
