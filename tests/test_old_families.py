"""What the general comparison with real models cannot show of the encoder families and old decoders."""

from __future__ import annotations

from typing import Any

import pytest

from flopcalc import FlopCounter, InvalidConfig, describe
from flopcalc.spans import BlockSparse
from flopcalc.verify import EAGER, build_real_model, operator_flops

BIG_BIRD = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 100,
    "block_size": 4,
    "num_random_blocks": 2,
}


def attention(config: dict[str, Any], tokens: int) -> int:
    """Forward FLOPs of the attention cores."""
    return FlopCounter(config, EAGER, "forward").breakdown([tokens]).by_kind().get("attention", 0)


@pytest.mark.parametrize("tokens", [40, 48, 132])  # 36 tokens and fewer attend in full
def test_block_sparse_attention_multiplies_what_big_bird_multiplies(tokens: int) -> None:
    import torch

    model = build_real_model("big_bird", BIG_BIRD)
    ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    tree = describe(BIG_BIRD | {"model_type": "big_bird"})
    _, seen = operator_flops(tree, model, lambda: model(ids, torch.ones_like(ids), use_cache=False))
    assert attention(BIG_BIRD | {"model_type": "big_bird"}, tokens) == seen


def test_block_sparse_pairs_by_hand() -> None:
    span = BlockSparse(size=2, random=1)
    assert span.pairs(14, "dense") == 14 * 14  # 7 blocks: in full
    # 8 blocks: two read 8, two read 5, four read 6 blocks of 2 x 2 pairs
    assert span.pairs(16, "exact") == 4 * (2 * 8 + 2 * 5 + 4 * 6)
    assert span.pairs(15, "masked") == span.pairs(16, "masked")  # the last block is filled up


def test_an_encoder_reads_both_ways_unless_it_is_a_decoder() -> None:
    both, masked = (
        FlopCounter({"model_type": "bert", "is_decoder": is_decoder}, "exact", "forward").breakdown([10])
        for is_decoder in (False, True)
    )
    assert both.by_kind()["attention"] == 12 * 2 * 2 * 768 * 100
    assert masked.by_kind()["attention"] == 12 * 2 * 2 * 768 * 55


def test_cross_attention_without_an_encoder_has_parameters_and_no_work() -> None:
    decoder = {"model_type": "roberta", "is_decoder": True}
    crossed = decoder | {"add_cross_attention": True}
    square = 768 * 768 + 768
    assert describe(crossed).num_params() - describe(decoder).num_params() == 12 * (4 * square + 2 * 768)
    assert FlopCounter(crossed)([100]) == FlopCounter(decoder)([100])
    with pytest.raises(InvalidConfig, match="add_cross_attention"):
        describe({"model_type": "roberta", "add_cross_attention": True})


def test_a_token_passes_through_the_adapter_of_one_language() -> None:
    one, three = ({"model_type": "xmod", "languages": languages} for languages in (["a"], ["a", "b", "c"]))
    adapter = 2 * 768 * 384 + 768 + 384
    assert describe(three).num_params() - describe(one).num_params() == 12 * 2 * adapter
    assert FlopCounter(three)([7]) == FlopCounter(one)([7])
    with pytest.raises(InvalidConfig, match="default_language"):
        describe(three | {"default_language": "d"})
