"""MiniMax-M3's blocks: which keys a query reads, and the published file."""

from __future__ import annotations

import pytest

from flopcalc import InvalidConfig, describe
from flopcalc.spans import LocalBlocks
from flopcalc.verify import verify

FIELDS = {"model_type": "minimax_m3_vl_text", "num_hidden_layers": 3, "mlp_layer_types": ["dense", "sparse", "sparse"]}
SPARSE = {"sparse_attention_freq": [0, 1, 1], "sparse_block_size": 16, "sparse_topk_blocks": 2}


def test_each_query_reads_its_block_so_far_and_the_best_of_the_others() -> None:
    for size, block in ((8, 2), (6, 3), (4, 4)):
        reads = [i if -(-i // block) <= size // block else size - block + (i - 1) % block + 1 for i in range(1, 40)]
        for n in range(40):
            assert LocalBlocks(size, block).pairs(n, "exact") == sum(reads[:n])
            assert LocalBlocks(size, block).pairs(n, "dense") == n * min(n, size)


def test_layers_with_an_indexer_equal_the_real_model() -> None:
    assert verify(FIELDS | {"sparse_attention_config": SPARSE}).equal


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"sparse_local_block": 0}, "sparse_local_block: found 0"),
        ({"sparse_attention_freq": 3}, "sparse_attention_freq: found 3"),
        ({"sparse_attention_freq": [1]}, "layer_types: found 1 entries"),
        ({"sparse_num_index_heads": 5}, "num_attention_heads: found 64"),
    ],
)
def test_a_contradiction_is_named(changed: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        describe(FIELDS | {"sparse_attention_config": SPARSE | changed})
