"""Plans: what every one keeps, how close the good ones come, and what is impossible."""

from __future__ import annotations

import itertools
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flopcalc
from flopcalc import InvalidBatch, InvalidOption, balance, pack

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import bench_packing
import packing_baselines

COUNTER = flopcalc.FlopCounter({"model_type": "llama"})
COUNTERS = {name: flopcalc.FlopCounter(config) for name, config in bench_packing.MODELS.items()}
WITHIN_A_TOKEN = 1 + 1e-6  # of the million or more that a rank runs: finer is chance
LENGTHS = (bench_packing.rollouts, bench_packing.instructions, bench_packing.web)


class Squares:
    """A counter of n*n, for numbers that can be checked by hand."""

    def per_document(self, seq_lens: Any) -> Any:
        return np.asarray(seq_lens) ** 2


def lengths(distribution: Any, num: int, seed: int = 0) -> Any:
    return distribution(np.random.default_rng(seed), num)


# --- what every plan keeps -----------------------------------------------------------------------


@st.composite
def packings(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    """Documents and options, many of them at the edge of the possible."""
    cap = draw(st.sampled_from([8, 10, 100, 4096, 65536]))
    multiple_of = draw(st.sampled_from([1, 1, 1, 2, 8]))
    longest = cap // multiple_of * multiple_of
    length = draw(
        st.sampled_from(
            [
                st.integers(0, longest),
                st.integers(1, max(1, longest // 10)),
                st.integers(cap // 2 - 1, min(cap // 2 + 2, longest)),
                st.sampled_from([0, 1, min(cap // 3 + 1, longest), longest]),
                st.just(longest),
            ]
        )
    )
    options = {
        "max_tokens": cap,
        "num_ranks": draw(st.integers(1, 9)),
        "sync": draw(st.sampled_from(["micro_batch", "step"])),
        "multiple_of": multiple_of,
        "pad_to_longest": draw(st.booleans()),
    }
    return draw(st.lists(length, min_size=1, max_size=80)), options


@settings(max_examples=1000, deadline=None)
@given(packings())
def test_a_plan_has_every_document_once_no_cap_broken_and_as_many_micro_batches_on_each_rank(
    case: tuple[list[int], dict[str, Any]],
) -> None:
    seq_lens, options = case
    try:
        plan = pack(seq_lens, counter=COUNTER, **options)
    except InvalidBatch as error:
        assert f"found {len(seq_lens)} documents" in str(error) or "no way" in str(error)
        return
    assert len(plan.micro_batches) == options["num_ranks"]
    assert {len(batches) for batches in plan.micro_batches} == {plan.num_micro_batches}
    assert sorted(i for rank in plan.ranks for i in rank) == list(range(len(seq_lens)))
    for rank, batches in enumerate(plan.micro_batches):
        for step, batch in enumerate(batches):
            assert batch and batch == sorted(batch)
            run = [-(-seq_lens[i] // options["multiple_of"]) * options["multiple_of"] for i in batch]
            if options["pad_to_longest"]:
                run = [max(run)] * len(run)
            assert plan.tokens[rank, step] == sum(run) <= options["max_tokens"]
            assert plan.flops[rank, step] == COUNTER(run)
    assert plan.makespan >= plan.lower_bound
    assert plan == pack(tuple(seq_lens), counter=COUNTER, **options)
    assert plan.summary()


@settings(max_examples=500, deadline=None)
@given(st.lists(st.integers(0, 65536), min_size=1, max_size=80), st.integers(1, 9), st.booleans())
def test_a_split_without_a_cap_has_every_document_once(seq_lens: list[int], ranks: int, equal_count: bool) -> None:
    if equal_count and len(seq_lens) % ranks:
        with pytest.raises(InvalidBatch, match=f"{ranks} ranks cannot share"):
            balance(seq_lens, ranks, COUNTER, equal_count)
        return
    plan = balance(seq_lens, ranks, COUNTER, equal_count)
    assert sorted(i for rank in plan.ranks for i in rank) == list(range(len(seq_lens)))
    assert all(rank == sorted(rank) for rank in plan.ranks)
    assert plan.rank_flops == [COUNTER([seq_lens[i] for i in rank]) for rank in plan.ranks]
    assert plan.makespan >= plan.lower_bound
    if equal_count:
        assert {len(rank) for rank in plan.ranks} == {len(seq_lens) // ranks}
    elif len(seq_lens) >= ranks:
        assert all(plan.ranks)


def test_lists_arrays_and_tensors_of_any_kind_give_one_plan() -> None:
    torch = pytest.importorskip("torch")
    seq_lens = lengths(bench_packing.rollouts, 500)
    forms = [seq_lens, seq_lens.tolist(), seq_lens.astype(np.int32), torch.tensor(seq_lens), iter(seq_lens.tolist())]
    plans = [pack(form, max_tokens=65536, num_ranks=4, counter=COUNTER) for form in forms]
    assert all(plan == plans[0] for plan in plans)
    assert plans[0] != pack(seq_lens[::-1], max_tokens=65536, num_ranks=4, counter=COUNTER)


def test_costs_beyond_64_bits_stay_exact() -> None:
    seq_lens = [2**31, 2**30, 2**30 - 7, 12345]
    plan = pack(seq_lens, max_tokens=2**32, num_ranks=2, counter=COUNTER)
    assert plan.ranks == [[0], [1, 2, 3]]
    assert plan.rank_flops == [COUNTER([2**31]), COUNTER([2**30, 2**30 - 7, 12345])]
    assert plan.makespan == COUNTER([2**31]) > 2**64


def test_sums_beyond_64_bits_of_costs_within_them_stay_exact() -> None:
    seq_lens = lengths(bench_packing.rollouts, 100_000)
    plan = pack(seq_lens, max_tokens=65536, num_ranks=8, counter=COUNTERS["GLM-5.2"])
    assert plan.total_flops == COUNTERS["GLM-5.2"](seq_lens) > 2**64


# --- E1 ------------------------------------------------------------------------------------------


def test_equal_tokens_are_not_equal_flops() -> None:
    """Case E1."""
    exact = flopcalc.FlopCounter(bench_packing.MODELS["llama2-7b"], convention="exact")
    one, eight = ([8192], [1024] * 8)
    core = [exact.breakdown(documents).by_kind()["attention"] for documents in (one, eight)]
    assert core == [52_783_000_584_192, 6_603_512_217_600]

    seq_lens = one * 2 + eight * 2
    split = balance(seq_lens, 2, exact)
    assert split.rank_flops[0] == split.rank_flops[1] == exact(one + eight)
    # By tokens alone, both long documents on one rank look as good.
    assert exact(one * 2) - exact(eight * 2) == 2 * (52_783_000_584_192 - 6_603_512_217_600)


# --- how close they come -------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["micro_batch", "step"])
@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize("distribution", LENGTHS)
def test_plans_are_within_1_percent_of_the_lower_bound_and_beat_every_packer_by_tokens(
    distribution: Any, ranks: int, sync: str
) -> None:
    seq_lens = lengths(distribution, 10_000, seed=ranks)
    others = [
        split(seq_lens, 65536, ranks)
        for split in (packing_baselines.first_fit_by_tokens, packing_baselines.greedy_by_tokens)
    ]
    for name, counter in COUNTERS.items():
        plan = pack(seq_lens, max_tokens=65536, num_ranks=ranks, counter=counter, sync=sync)
        assert plan.excess < 0.01, name
        flops = counter.per_document(seq_lens).astype(object)
        for bins in others:
            assert plan.makespan <= WITHIN_A_TOKEN * packing_baselines.makespan(bins, flops, ranks, sync), name


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("distribution", LENGTHS)
def test_plans_are_never_worse_than_karmarkar_karp_on_squares(distribution: Any, seed: int) -> None:
    seq_lens = lengths(distribution, 1000, seed)
    bins = packing_baselines.karmarkar_karp_by_squares(seq_lens, 65536, 8)
    for name, counter in COUNTERS.items():
        flops = counter.per_document(seq_lens).astype(object)
        for sync in ("micro_batch", "step"):
            plan = pack(seq_lens, max_tokens=65536, num_ranks=8, counter=counter, sync=sync)
            assert plan.makespan <= WITHIN_A_TOKEN * packing_baselines.makespan(bins, flops, 8, sync), (name, sync)


@pytest.mark.parametrize("equal_count", [False, True])
@pytest.mark.parametrize("distribution", LENGTHS)
def test_splits_without_a_cap_are_level(distribution: Any, equal_count: bool) -> None:
    for num, ranks in ((4096, 8), (4096, 64), (102_400, 1024)):
        assert balance(lengths(distribution, num), ranks, COUNTER, equal_count).excess < 0.01


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 100), min_size=2, max_size=7),
    st.integers(1, 3),
    st.sampled_from(["micro_batch", "step"]),
)
def test_small_plans_exist_where_any_does_and_are_near_the_best(seq_lens: list[int], ranks: int, sync: Any) -> None:
    """Against every way to put documents into micro-batches."""
    best = None
    for steps in range(1, len(seq_lens) // ranks + 1):
        for places in itertools.product(range(ranks * steps), repeat=len(seq_lens)):
            if len(set(places)) < ranks * steps:
                continue
            tokens, flops = [0] * (ranks * steps), [0] * (ranks * steps)
            for place, length in zip(places, seq_lens, strict=True):
                tokens[place] += length
                flops[place] += length**2
            if max(tokens) > 100:
                continue
            rows = [flops[rank::ranks] for rank in range(ranks)]
            makespan = max(map(sum, rows)) if sync == "step" else sum(map(max, zip(*rows, strict=True)))
            best = makespan if best is None else min(best, makespan)
        if ranks * (steps + 1) > 4:
            break
    try:
        plan = pack(seq_lens, max_tokens=100, num_ranks=ranks, counter=Squares(), sync=sync)
    except InvalidBatch:
        assert best is None
        return
    assert best is None or plan.lower_bound <= best
    assert best is None or plan.makespan <= 1.25 * best


# --- where ranks meet ----------------------------------------------------------------------------


def test_the_makespan_is_that_of_the_meeting_points() -> None:
    """Caps of one document: two steps of 9, 8 | 2, 1 against ranks of 9 + 1 and 8 + 2."""
    each = pack([9, 8, 2, 1], max_tokens=9, num_ranks=2, counter=Squares(), micro_batches=2)
    once = pack([9, 8, 2, 1], max_tokens=9, num_ranks=2, counter=Squares(), micro_batches=2, sync="step")
    assert each.makespan == 81 + 4
    assert once.makespan == 81 + 1
    assert sorted(map(sorted, once.ranks)) == [[0, 3], [1, 2]]


def test_long_documents_share_a_step() -> None:
    plan = pack([9, 1, 9, 1], max_tokens=9, num_ranks=2, counter=Squares())
    assert plan.micro_batches in ([[[0], [1]], [[2], [3]]], [[[0], [3]], [[2], [1]]])
    assert (plan.makespan, plan.imbalance, plan.idle_share) == (82, 1.0, 0.0)


# --- the report ----------------------------------------------------------------------------------


def test_lower_bounds_by_hand() -> None:
    """10 is alone in its micro-batch; beside it fit 5 + 5, half its work: 50 idle on top of 200 / 2."""
    plan = pack([10, 5, 5, 5, 5], max_tokens=10, num_ranks=2, counter=Squares())
    assert plan.lower_bounds == {"mean": 100, "largest": 100, "cap": 125}
    assert plan.makespan == plan.lower_bound == 125
    assert plan.imbalance == 1.25
    assert plan.idle_share == pytest.approx(0.2)

    pairs = balance([10, 2, 2, 1], 2, Squares(), equal_count=True)  # beside the 10 lies at least the 1
    assert pairs.lower_bounds == {"mean": 55, "largest": 100, "count": 101}
    assert pairs.makespan == 101

    three = balance([4, 4, 4, 1], 2, Squares())  # some rank holds two of the three
    assert three.lower_bounds == {"mean": 25, "largest": 32}
    assert three.makespan == 32


def test_the_report_adds_up() -> None:
    plan = pack([5, 4, 3, 2], max_tokens=5, num_ranks=2, counter=Squares(), micro_batches=2)
    assert plan.tokens.shape == plan.flops.shape == (2, 2)
    assert sum(plan.rank_tokens) == 14
    assert plan.total_flops == sum(plan.rank_flops) == 25 + 16 + 9 + 4
    assert plan.excess == plan.makespan / plan.lower_bound - 1


def test_the_summary_says_what_a_user_asks_first() -> None:
    plan = pack([5, 4, 3, 2], max_tokens=5, num_ranks=2, counter=Squares(), micro_batches=2)
    assert plan.summary().splitlines() == [
        "4 documents on 2 ranks, 2 micro-batches each of at most 5 tokens",
        "tokens       14 in all, 2 to 5 a micro-batch",
        "FLOPs        54 in all, 4 to 25 a micro-batch",
        "makespan     34 FLOPs: those of the slowest rank of every micro-batch, summed",
        "lower bound  34 FLOPs (cap): the makespan is 0.000% above it",
        "imbalance    1.259259 (max / mean): 20.588% of the ranks' time is idle",
    ]


# --- padding and alignment -----------------------------------------------------------------------


def test_aligned_lengths_count_and_cost_as_rounded_up() -> None:
    """8, 16, 8, 8: the 16 alone costs 256, the others 3 * 64."""
    plan = pack([5, 9, 3, 8], max_tokens=24, num_ranks=2, counter=Squares(), multiple_of=8)
    assert sorted(plan.ranks) == [[0, 2, 3], [1]]
    assert sorted(plan.tokens.ravel()) == [16, 24]
    assert sorted(plan.flops.ravel()) == [192, 256]


def test_padded_rows_count_and_cost_as_the_longest_beside_them() -> None:
    """Two rows of 8 and two of 2 cost 2*64 and 2*4; an 8 beside a 2 would make two of 8."""
    plan = pack([8, 2, 2, 8], max_tokens=16, num_ranks=1, counter=Squares(), pad_to_longest=True)
    assert sorted(map(tuple, plan.micro_batches[0])) == [(0, 3), (1, 2)]
    assert sorted(plan.flops.ravel()) == [8, 128]
    assert sorted(plan.tokens.ravel()) == [4, 16]


@pytest.mark.parametrize("sync", ["micro_batch", "step"])
def test_padded_plans_are_level_and_pad_little(sync: Any) -> None:
    seq_lens = lengths(bench_packing.rollouts, 4000)
    plan = pack(seq_lens, max_tokens=65536, num_ranks=8, counter=COUNTER, sync=sync, pad_to_longest=True)
    assert plan.imbalance < 1.02
    assert sum(plan.rank_tokens) < 1.05 * seq_lens.sum()


# --- the impossible ------------------------------------------------------------------------------


def test_no_documents_are_a_plan_without_micro_batches() -> None:
    for plan in (pack([], max_tokens=8, num_ranks=3, counter=COUNTER), balance([], 3, COUNTER, equal_count=True)):
        assert plan.micro_batches == plan.ranks == [[], [], []]
        assert (plan.num_micro_batches, plan.makespan, plan.lower_bound) == (0, 0, 0)
        assert (plan.imbalance, plan.idle_share, plan.excess) == (1.0, 0.0, 0.0)
        assert plan.summary().startswith("0 documents on 3 ranks, 0 micro-batches each")


@pytest.mark.parametrize(
    ("seq_lens", "options", "message"),
    [
        ([4, 9, 5], {}, r"seq_lens\[1\]: found 9 tokens, expected at most max_tokens = 8"),
        ([4, 7, 5], {"multiple_of": 5}, r"seq_lens\[1\]: found 10 tokens"),
        ([4], {}, "found 1 documents, expected one for each of 2 ranks"),
        ([8, 8, 8], {}, "found 3 documents, expected at least 4: one for each of 2 micro-batches on 2 ranks"),
        ([5, 5, 5, 5, 5], {}, "found 5 documents, expected at least 6"),
        ([5, 4, 4, 5, 3, 5, 5], {"max_tokens": 6}, "no way to pack 7 documents into 3 micro-batches of at most 6"),
        ([1] * 5, {"micro_batches": 3}, "found 5 documents, expected at least 6.*take fewer micro_batches"),
        ([4, -1], {}, "found -1"),
        ([4, 1.5], {}, "found 1.5"),
        ([[4, 2]], {}, "expected a whole number"),
        ("44", {}, "found '44'"),
        ([2**61] * 4, {"max_tokens": 2**62}, "expected lengths that can be run"),
    ],
)
def test_documents_that_cannot_be_packed_are_named(seq_lens: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidBatch, match=message):
        pack(seq_lens, **{"max_tokens": 8, "num_ranks": 2, "counter": COUNTER, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_ranks": 0}, "num_ranks: found 0"),
        ({"num_ranks": -2}, "num_ranks: found -2"),
        ({"num_ranks": 2.0}, "num_ranks: found 2.0"),
        ({"num_ranks": True}, "num_ranks: found True"),
        ({"max_tokens": 0}, "max_tokens: found 0"),
        ({"multiple_of": 0}, "multiple_of: found 0"),
        ({"micro_batches": 0}, "micro_batches: found 0"),
        ({"micro_batches": 1}, "micro_batches: found 1, expected at least 2"),
        ({"sync": "rank"}, "sync: found 'rank'"),
        ({"counter": {"model_type": "llama"}}, "counter: found .*pass flopcalc.FlopCounter"),
    ],
)
def test_options_that_do_not_exist_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        pack([8, 8, 8, 8], **{"max_tokens": 8, "num_ranks": 2, "counter": COUNTER, **options})


def test_ranks_without_documents_idle_where_counts_need_not_be_equal() -> None:
    plan = balance([9, 1], 3, Squares())
    assert plan.ranks == [[0], [1], []]
    assert plan.makespan == plan.lower_bound == 81
    with pytest.raises(InvalidBatch, match="3 ranks cannot share equally"):
        balance([9, 1], 3, Squares(), equal_count=True)


def test_a_counter_to_which_longer_is_cheaper_is_balanced_all_the_same() -> None:
    class Falling:
        def per_document(self, seq_lens: Any) -> Any:
            return 1000 - np.asarray(seq_lens)

    seq_lens = list(range(1, 101))
    plan = pack(seq_lens, max_tokens=1000, num_ranks=4, counter=Falling())
    assert plan.imbalance < 1.01
    with pytest.raises(InvalidOption, match="pad_to_longest"):
        pack(seq_lens, max_tokens=1000, num_ranks=4, counter=Falling(), pad_to_longest=True)


# --- size ----------------------------------------------------------------------------------------


def test_memory_grows_with_the_documents_and_a_million_of_them_are_packed() -> None:
    peaks = []
    for num in (250_000, 1_000_000):
        seq_lens = lengths(bench_packing.rollouts, num)
        tracemalloc.start()
        start = time.perf_counter()
        plan = pack(seq_lens, max_tokens=65536, num_ranks=1024, counter=COUNTER)
        assert time.perf_counter() - start < 30
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert plan.excess < 0.01
    assert peaks[1] < 4.4 * peaks[0]
    assert peaks[1] < 250 * 1_000_000
