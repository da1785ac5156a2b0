"""Qwen4-Exp's indexer on real tensors: what it scores and what it picks, against our spans."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextQSAIndexer

from flopcalc import FlopCounter, InvalidConfig, describe

BLOCK, BUDGET, HEADS, DIM = 4, 12, 3, 16
CONFIG: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 24,
    "num_hidden_layers": 1,
    "layer_types": ["full_attention"],
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "hc_count": 2,
    "hc_lowrank": 8,
    "indexer_n_heads": HEADS,
    "indexer_kv_heads": 1,
    "indexer_head_dim": DIM,
    "indexer_budget": BUDGET,
    "indexer_compress_ratio": BLOCK,
}
OURS = {"model_type": "qwen4_exp_text", **CONFIG}


def run_indexer(tokens: int) -> tuple[int, int]:
    """(FLOPs of the scores, key and query pairs picked) of one document."""
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}
    indexer = Qwen4ExpTextQSAIndexer(Qwen4ExpTextConfig(**CONFIG, rope_parameters=rope), layer_idx=0)
    angles = torch.randn(1, tokens, DIM)
    causal = torch.full((1, 1, tokens, tokens), torch.finfo(torch.float32).min).triu(1)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        picked = indexer(torch.randn(1, tokens, CONFIG["hidden_size"]), (angles.cos(), angles.sin()), causal, None)
    projections = 2 * tokens * CONFIG["hidden_size"] * (HEADS + 1) * DIM
    return counter.get_total_flops() - projections, int((picked & (causal == 0)).sum())


@pytest.mark.parametrize("tokens", [1, 3, 4, 11, 12, 13, 18, 40, 61])
def test_scores_and_picked_pairs_of_the_real_indexer(tokens: int) -> None:
    scores, pairs = run_indexer(tokens)
    kinds = FlopCounter(OURS, "exact", "forward").breakdown([tokens]).by_kind()
    assert kinds["index_scores"] == scores
    assert kinds["attention"] == pairs * 2 * 2 * (16 + 16)  # 2 heads, products with keys and values of 16


def test_standard_counts_blocks_and_budget_without_causal_discount_and_no_backward_of_the_scores() -> None:
    kinds = FlopCounter(OURS).breakdown([61]).by_kind()
    assert kinds["index_scores"] == 2 * HEADS * DIM * 61 * 15  # 61 // 4 blocks, forward only
    assert kinds["attention"] == 12 * 2 * 16 * 61 * BUDGET


def test_ngram_tables_have_a_prime_number_of_rows_for_each_head() -> None:
    ngrams = {"ngram_size": 3, "heads_per_ngram": 2, "ngram_vocab_size_base": 100, "ple_embed_dim": 8}
    layers = {"num_hidden_layers": 3, "layer_types": ["linear_attention"] * 3, "ple_layer_ids": [3, 1]}
    tree = describe(OURS | ngrams | layers | {"make_ngram_vocab_size_divisible_by": 10})
    shapes = dict(tree.parameters())
    # 4 heads a layer: 101 + 103 + 107 + 109 = 420; then 113 + 127 + 131 + 137 = 508, padded to 510
    assert shapes["model.layers.0.ple.ple_embedding.ngram_embedding.weight"] == (420, 2)
    assert shapes["model.layers.2.ple.ple_embedding.ngram_embedding.weight"] == (510, 2)
    looked_up = FlopCounter(tree).breakdown([10]).by_module()
    assert looked_up.get("model.layers.0.ple.ple_embedding", 0) == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"indexer_n_heads": None}, "indexer_n_heads: found None"),
        ({"indexer_kv_heads": 2}, "indexer_kv_heads: found 2"),
        ({"indexer_budget": 13}, "indexer_budget: found 13"),
        ({"ple_layer_ids": [1], "heads_per_ngram": 4}, "ple_layer_ids: found 1"),
        ({"num_experts_per_tok": 5}, "num_experts_per_tok: found 5"),
    ],
)
def test_a_contradiction_is_an_error_that_names_the_field(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        describe(OURS | change)
