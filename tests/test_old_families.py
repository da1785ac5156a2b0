"""What the general comparison with real models cannot show of the encoder families and old decoders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from flopcalc import FlopCounter, InvalidConfig, describe
from flopcalc.spans import BlockSparse, Hashes, NearChunks
from flopcalc.tree import MATMUL_KINDS
from flopcalc.verify import EAGER, build_real_model, compare_parameters, operator_flops

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


def test_a_window_of_modernbert_stands_half_on_either_side_and_that_of_its_decoder_behind() -> None:
    """Two layers, one of them with a window of 4. Of 10 tokens, 6 read 2 on either side and themselves, the
    outer ones 3, 4, 4 and 3; a causal window is half as wide and holds the token itself."""
    encoder, decoder = (
        FlopCounter({"model_type": name, "num_hidden_layers": 2, "local_attention": 4}, "exact", "forward")
        for name in ("modernbert", "modernbert-decoder")
    )
    assert encoder.by_kind([10])["attention"] == 2 * 2 * 768 * (100 + 6 * 5 + 3 + 4 + 4 + 3)
    assert decoder.by_kind([10])["attention"] == 2 * 2 * 768 * (55 + 1 + 9 * 2)


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


def equal_to_real(config: dict[str, Any], model: Any, run: Callable[[int], Any], lengths: tuple[int, ...]) -> None:
    """Parameter tables, and forward FLOPs of weights and mixers, of a model built by hand."""
    tree = describe(config)
    assert compare_parameters(tree, model) == ([], [])
    for tokens in lengths:
        by_kind = FlopCounter(tree, EAGER, "forward").breakdown([tokens]).by_kind()
        weights = sum(flops for kind, flops in by_kind.items() if kind in MATMUL_KINDS)
        seen = operator_flops(tree, model, partial(run, tokens))
        assert (weights, sum(by_kind.values()) - weights) == seen


@pytest.mark.parametrize("model_type", ["musicgen", "musicgen_melody"])
def test_musicgen_equals_the_class_of_its_decoder(model_type: str) -> None:
    import torch
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    decoder = {"num_hidden_layers": 2, "hidden_size": 64, "ffn_dim": 100, "num_codebooks": 3, "num_attention_heads": 4}
    whole = AutoConfig.for_model(model_type, decoder=decoder)
    with torch.device("meta"):
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(whole)]._from_config(whole.decoder, attn_implementation="eager")

    def run(tokens: int) -> Any:
        return model.eval()(torch.zeros(3, tokens, dtype=torch.long, device="meta"), use_cache=False)

    equal_to_real({"model_type": model_type, "decoder": decoder}, model, run, (48, 131))


@pytest.mark.parametrize("extra", [{}, {"causal": True, "n_langs": 3}, {"tie_word_embeddings": False}])
def test_xlm_equals_the_real_model_on_the_cpu(extra: dict[str, Any]) -> None:
    import torch
    from transformers import XLMConfig, XLMWithLMHeadModel

    fields = {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 100} | extra
    model = XLMWithLMHeadModel(XLMConfig(**fields)).eval()
    equal_to_real({"model_type": "xlm"} | fields, model, lambda tokens: model(torch.full((1, tokens), 5)), (7, 20))


def test_xlm_by_hand() -> None:
    # 2 layers of 4 squares and 2 matrices of 4 squares each, and the head; 12 layers would be 6 times as much
    config = {"model_type": "xlm", "emb_dim": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 100}
    forward = FlopCounter(config, "matmul-dense", "forward")([5])
    assert forward == 2 * 5 * (2 * 12 * 32 * 32 + 32 * 100) + 2 * 4 * 32 * 5 * 5


def test_git_reads_all_vectors_of_its_tower() -> None:
    import torch

    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    fields = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    fields |= {"vision_config": vision | {"image_size": 64, "patch_size": 16}}
    model = build_real_model("git", fields)
    pixels = torch.zeros(1, 3, 64, 64, dtype=torch.bfloat16, device="meta")
    ids = torch.zeros(1, 20, dtype=torch.long, device="meta")
    tree = describe({"model_type": "git"} | fields)
    seen = operator_flops(tree, model, lambda: model(ids, pixel_values=pixels, use_cache=False))
    # 16 patches and a class token stand before the text; the head works on all
    breakdown = FlopCounter(tree, EAGER, "forward").breakdown([17 + 20], images=[16])
    assert sum(breakdown.by_kind().values()) == sum(seen)


def test_streams_that_predict_read_the_main_stream_and_themselves() -> None:
    config = {"model_type": "prophetnet", "num_decoder_layers": 1, "ngram": 3}
    exact = FlopCounter(config, "exact", "forward").breakdown([4]).by_kind()["attention"]
    # main 1+2+3+4 pairs; the streams the same, 1+1+2+3 and 1+1+1+2, and 4 of their own each
    assert exact == 2 * 2 * 1024 * (10 + (10 + 4) + (7 + 4) + (5 + 4))


def test_a_prompt_stands_before_each_document_of_cpmant() -> None:
    config = {"model_type": "cpmant", "num_hidden_layers": 1}
    counter = FlopCounter(config, "matmul-dense", "forward")
    layer = 2 * (4 * 4096 * 4096 + 3 * 4096 * 10240) * (10 + 32)
    assert counter([10]) == layer + 2 * 2 * 4096 * 42 * 42 + 2 * 4096 * 30720 * 10


REFORMER = {
    "is_decoder": True,
    "vocab_size": 50,
    "hidden_size": 24,
    "feed_forward_size": 40,
    "num_attention_heads": 3,
    "attention_head_size": 8,
    "attn_layers": ["local", "lsh", "lsh"],
    "local_attn_chunk_length": 4,
    "lsh_attn_chunk_length": 8,
    "axial_pos_shape": [8, 16],
    "axial_pos_embds_dim": [10, 14],
    "max_position_embeddings": 128,
}


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"num_hashes": 2, "lsh_num_chunks_before": 2},
        {"num_buckets": 6, "local_num_chunks_before": 2},
        {"num_buckets": [2, 8], "tie_word_embeddings": True, "axial_pos_embds": False},
    ],
)
@pytest.mark.parametrize("tokens", [4, 8, 16, 128])
def test_reformer_equals_the_real_model_on_the_cpu(extra: dict[str, Any], tokens: int) -> None:
    import torch
    from transformers import ReformerConfig, ReformerModelWithLMHead

    model = ReformerModelWithLMHead(ReformerConfig(**REFORMER, **extra)).eval()
    ids = torch.ones(1, tokens, dtype=torch.long)
    equal_to_real(
        {"model_type": "reformer"} | REFORMER | extra, model, lambda _: model(ids, use_cache=False), (tokens,)
    )


def test_near_chunks_and_hashes_by_hand() -> None:
    chunks = NearChunks(4, before=1, rounds=2)
    assert chunks.pairs(4, "dense") == 16
    assert chunks.pairs(12, "dense") == 2 * 3 * 4 * 8
    assert chunks.pairs(3, "exact") == 6
    assert chunks.pairs(10, "exact") == 2 * ((10 + 10 + 3) + (16 + 8))  # triangles, then the chunks before
    assert NearChunks(4, before=2).pairs(18, "exact") == 4 * 10 + 3 + 16 * (1 + 2 + 2) + 4 * 2 * 2
    hashes = Hashes(4, rounds=3, buckets=None, limit=8)
    assert hashes.pairs(4, "dense") == 0
    assert hashes.pairs(16, "exact") == 16 * 3 * 4  # 4 chunks: 8 buckets
    assert hashes.pairs(17, "dense") == 20 * 3 * 4  # 5 chunks: 8 buckets
    assert hashes.pairs(64, "dense") == 64 * 3 * 6  # 16 chunks: 32 buckets, as 4 times 8
    assert hashes.pairs(np.array([4, 64]), "dense").tolist() == [0, 64 * 3 * 6]


def test_reformer_is_refused_where_its_class_refuses() -> None:
    for wrong, field in (
        ({"is_decoder": False}, "is_decoder"),
        ({"axial_pos_embds_dim": [10, 10]}, "axial_pos_embds_dim"),
        ({"lsh_num_chunks_after": 1}, "lsh_num_chunks_after"),
        ({"axial_pos_shape": [128]}, "axial_pos_shape"),
        ({"attn_layers": ["local", "global", "lsh"]}, "attn_layers"),
    ):
        with pytest.raises(InvalidConfig, match=field):
            describe({"model_type": "reformer"} | REFORMER | wrong)
