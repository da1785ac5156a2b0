"""Prefill, decode and rollout against sums token by token over what each query really reads."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcalc import FlopCounter, InvalidBatch, InvalidOption
from flopcalc.generation import decode_flops, prefill_flops, rollout_flops
from flopcalc.spans import Blocks, Chunk, Compressed, Full, Span, TopK, Window
from flopcalc.work import Work

TINY = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "vocab_size": 256,
}  # fmt: skip
LAYERS = 2 * (64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128)  # matrix weights without the head
HEAD = 64 * 256
CORE = 2 * (2 * 4 * (16 + 16))  # FLOPs of a pair, both layers


def keys_read(span: Span, position: int) -> int:
    """Keys that the query at a position (from 1) reads, counted one by one."""
    match span:
        case Blocks(size, block):
            return position if position <= size else size + position_in_block(position - size, block)
        case Window(size):
            return len(range(max(0, position - size), position))
        case Chunk(size):
            return len(range((position - 1) // size * size, position))
        case Compressed(rate, top_k):
            closed = len([entry for entry in range(position) if (entry + 1) * rate <= position])
            return closed if top_k is None else min(closed, top_k)
        case _:
            return position


def position_in_block(beyond: int, block: int) -> int:
    return beyond % block


SPANS = [Full(), Window(5), TopK(7), Chunk(4), Compressed(3), Compressed(3, 2), Blocks(6, 3)]


@pytest.mark.parametrize("span", SPANS, ids=repr)
@given(cached=st.integers(0, 40), new=st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_work_beyond_the_cache_is_the_sum_over_the_new_queries(span: Span, cached: int, new: int) -> None:
    work = Work.of([(span, "exact", 2), (None, "exact", 10)])
    queries = range(cached + 1, cached + new + 1)
    assert work.beyond(cached, cached + new, wide=False) == sum(2 * keys_read(span, i) + 10 for i in queries)


@pytest.mark.parametrize("span", [Full(), Window(5), Chunk(4), Compressed(3), Compressed(3, 2)], ids=repr)
@given(cached=st.integers(0, 40), new=st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_dense_prefill_lets_each_new_query_read_what_the_last_of_its_chunk_reads(
    span: Span, cached: int, new: int
) -> None:
    total = cached + new

    def last_of(i: int) -> int:
        return min(total, -(-i // span.size) * span.size) if isinstance(span, Chunk) else total

    expected = sum(keys_read(span, last_of(i)) for i in range(cached + 1, total + 1))
    assert Work.of([(span, "dense", 1)]).beyond(cached, total, wide=True) == expected


def test_prefill_of_a_tiny_model_by_hand() -> None:
    """10 tokens on 5 cached ones: exact pairs 6 + 7 + ... + 15 = 105, dense 10 * 15."""
    weights = 2 * (10 * LAYERS + HEAD)
    assert prefill_flops(TINY, 10, 5, convention="exact") == weights + 105 * CORE
    assert prefill_flops(TINY, 10, 5, convention="matmul-dense") == weights + 150 * CORE
    assert prefill_flops(TINY, [10, 10], [5, 5], convention="exact") == 2 * (weights + 105 * CORE)
    assert prefill_flops(TINY, 10, 5, logits="all", convention="exact") == 2 * 10 * (LAYERS + HEAD) + 105 * CORE
    assert prefill_flops(TINY, 10, 5, logits="none", convention="exact") == 2 * 10 * LAYERS + 105 * CORE


def test_decode_of_a_tiny_model_by_hand() -> None:
    """3 steps after 5 tokens read 6 + 7 + 8 keys, whatever the convention's pairs."""
    expected = 2 * 3 * (LAYERS + HEAD) + 21 * CORE
    assert decode_flops(TINY, 5, 3, convention="exact") == expected
    assert decode_flops(TINY, 5, 3, convention="matmul-dense") == expected


def test_rollout_is_a_prefill_and_the_steps_that_feed_tokens_back() -> None:
    """4 response tokens: the first comes out of the prefill, three are fed back, on 6, 7 and 8 keys."""
    prefill = 2 * (5 * LAYERS + HEAD) + 15 * CORE
    steps = 2 * 3 * (LAYERS + HEAD) + 21 * CORE
    assert rollout_flops(TINY, [5], [4], convention="exact") == prefill + steps
    assert rollout_flops(TINY, [5], [[4, 4]], convention="exact") == prefill + 2 * steps
    assert rollout_flops(TINY, [5], [[1]], convention="exact") == prefill
    assert rollout_flops(TINY, [5], [[0]], convention="exact") == prefill


MODELS = ["llama", "mistral", "gpt_oss", "qwen3_next", "deepseek_v32", "deepseek_v4", "llama4_text", "mixtral"]


@pytest.mark.parametrize("model_type", MODELS)
def test_whole_prefill_with_all_logits_is_the_forward_pass(model_type: str) -> None:
    for convention in ("exact", "matmul-dense", "standard"):
        counter = FlopCounter({"model_type": model_type}, convention, "forward")
        assert prefill_flops(counter, 3000, logits="all") == counter([3000])


@pytest.mark.parametrize("model_type", MODELS)
def test_steps_and_parts_of_a_prefill_add_up(model_type: str) -> None:
    counter = FlopCounter({"model_type": model_type}, "exact", "forward")
    whole = prefill_flops(counter, 700, 100, logits="none")
    parts = prefill_flops(counter, 333, 100, logits="none") + prefill_flops(counter, 367, 433, logits="none")
    assert whole == parts
    steps = sum(decode_flops(counter, 100 + i, 1) for i in range(5))
    assert decode_flops(counter, 100, 5) == steps
    assert steps == prefill_flops(counter, 5, 100, logits="all")


def test_a_window_bounds_the_cost_of_a_step() -> None:
    windowed = FlopCounter({**TINY, "model_type": "mistral", "sliding_window": 16}, "exact", "forward")
    assert decode_flops(windowed, 100, 1) == decode_flops(windowed, 10**6, 1)
    full = FlopCounter(TINY, "exact", "forward")
    assert decode_flops(full, 10**6, 1) - decode_flops(full, 100, 1) == (10**6 - 100) * CORE


def test_recurrent_layers_cost_the_same_at_every_step() -> None:
    counter = FlopCounter({"model_type": "mamba2"}, "exact", "forward")
    assert decode_flops(counter, 0, 1) == decode_flops(counter, 10**6, 1)


def test_a_million_steps_are_closed_form() -> None:
    counter = FlopCounter({"model_type": "deepseek_v4"}, "exact", "forward")
    began = time.perf_counter()
    assert decode_flops(counter, 10**6, 10**6) > decode_flops(counter, 0, 10**6)
    assert time.perf_counter() - began < 2


def test_a_training_counter_generates_with_its_convention_and_forward_passes() -> None:
    assert decode_flops(FlopCounter(TINY, "exact"), 5, 3) == decode_flops(TINY, 5, 3, convention="exact")


def test_what_cannot_be_generated_is_said() -> None:
    with pytest.raises(InvalidOption, match="logits: found 'some'"):
        prefill_flops(TINY, 10, logits="some")  # type: ignore[arg-type]
    with pytest.raises(InvalidBatch, match="cached_tokens: found 2 numbers, expected 1"):
        prefill_flops(TINY, [10], [1, 2])
    with pytest.raises(InvalidBatch, match="new_tokens"):
        decode_flops(TINY, 5, -1)
    with pytest.raises(InvalidBatch, match="responses: found those of 1 prompts, expected 2"):
        rollout_flops(TINY, [5, 5], [4])
    with pytest.raises(InvalidBatch, match="images: given"):
        prefill_flops(TINY, 10, images=[4])
    bidirectional = {"model_type": "gemma", "use_bidirectional_attention": True}
    assert prefill_flops(bidirectional, 10) > 0
    with pytest.raises(InvalidOption, match="both directions"):
        decode_flops(bidirectional, 10, 1)
