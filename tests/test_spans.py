"""Pair counts against loops over every query and key."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flopcalc.spans import Bidirectional, BidirectionalWindow, Blocks, Chunk, Compressed, Full, Span, Sum, Window

LENGTHS = st.integers(0, 90)
SIZES = st.integers(1, 40)


def loop(n: int, reads: Callable[[int, int], bool]) -> int:
    """Pairs of queries and keys (both from 0) for which `reads` holds."""
    return sum(reads(query, key) for query in range(n) for key in range(n))


@given(LENGTHS, SIZES)
def test_exact_pairs_equal_a_loop_over_the_mask(n: int, size: int) -> None:
    assert Full().pairs(n, "exact") == loop(n, lambda q, k: k <= q)
    assert Window(size).pairs(n, "exact") == loop(n, lambda q, k: q - size < k <= q)
    assert Chunk(size).pairs(n, "exact") == loop(n, lambda q, k: k <= q and q // size == k // size)
    assert Bidirectional().pairs(n, "exact") == loop(n, lambda q, k: True)
    assert BidirectionalWindow(size).pairs(n, "exact") == loop(n, lambda q, k: abs(q - k) < size)


@given(LENGTHS, st.integers(1, 6), st.integers(1, 6))
def test_picked_blocks_come_with_the_tokens_of_the_unfinished_one(n: int, block: int, top_k: int) -> None:
    def reads(query: int, key: int) -> bool:  # whichever blocks are picked, their number counts: take the first ones
        finished = (query + 1) // block
        return key // block < min(finished, top_k) or finished * block <= key <= query

    assert Blocks(top_k * block, block).pairs(n, "exact") == loop(n, reads)
    assert Blocks(top_k * block, block).pairs(n, "dense") == n * min(n, top_k * block)


@given(LENGTHS, SIZES, st.one_of(st.none(), SIZES))
def test_compressed_pairs_equal_a_loop_over_closed_entries(n: int, rate: int, top_k: int | None) -> None:
    closed = [sum((entry + 1) * rate <= query + 1 for entry in range(n)) for query in range(n)]
    capped = [count if top_k is None else min(count, top_k) for count in closed]
    assert Compressed(rate, top_k).pairs(n, "exact") == sum(capped)
    assert Compressed(rate, top_k).pairs(n, "dense") == n * (capped[-1] if capped else 0)
    assert Compressed(rate, top_k).pairs(n, "masked") == n * (closed[-1] if closed else 0)


@given(LENGTHS, SIZES)
def test_dense_pairs_give_every_query_the_widest_reach(n: int, size: int) -> None:
    assert Window(size).pairs(n, "dense") == n * max((min(q + 1, size) for q in range(n)), default=0)
    blocks = [len([k for k in range(n) if k // size == block]) for block in range(n)]
    assert Chunk(size).pairs(n, "dense") == sum(block * block for block in blocks)
    assert BidirectionalWindow(size).pairs(n, "dense") == n * min(n, 2 * size - 1)
    assert Window(size).pairs(n, "masked") == Full().pairs(n, "dense") == n * n


SPANS: list[Span] = [Full(), Bidirectional(), Window(7), Chunk(5), Compressed(4), Compressed(4, 3)]
SPANS += [BidirectionalWindow(7), Blocks(8, 4)]


@pytest.mark.parametrize("span", [*SPANS, Sum((Window(7), Compressed(4, 3)))])
@pytest.mark.parametrize("rule", ["dense", "exact", "masked"])
def test_arrays_and_ints_agree(span: Span, rule: str) -> None:
    lengths = np.arange(100)
    assert span.pairs(lengths, rule, np.minimum).tolist() == [span.pairs(int(n), rule) for n in lengths]


def test_a_sum_is_the_sum_of_its_parts() -> None:
    both = Sum((Window(7), Sum((Compressed(4), Full()))))
    assert both.parts() == (Window(7), Compressed(4), Full())
    assert both.pairs(33, "exact") == sum(part.pairs(33, "exact") for part in both.parts())
