"""The meter in a process group: real processes (gloo), compared with one process that did it all."""

from __future__ import annotations

import json
import math
import multiprocessing
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcalc import InvalidBatch, InvalidOption, MfuMeter
from flopcalc.distributed import Share, combine, decode, encode, gather

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
if not (dist.is_available() and dist.is_gloo_available()):
    pytest.skip("torch without gloo", allow_module_level=True)

QWEN3 = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 256,
}
BATCHES = ([[64, 3], [128]], [[7]], [[1] * 16, [500]], [[32, 32, 32]])
"""Micro-batches of four replicas, of different shapes and number."""
SECONDS = (1.0, 2.5, 0.5, 1.5)


# --- what the ranks do -------------------------------------------------------------------------------


def metered(rank: int, *, peak: float | None = 1e9, replica: int | None = None, batches: Any = None) -> dict[str, Any]:
    """One interval of this rank; its logs, record and warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        peaks = {"device": "a device of no table"} if peak is None else {"peak_flops": peak}
        meter = MfuMeter(QWEN3, group=dist.group.WORLD, replica=replica, **peaks)
        for lengths in BATCHES[rank] if batches is None else batches:
            meter.add(lengths)
        logs = meter.step(elapsed_seconds=SECONDS[rank])
    return {"logs": logs, "record": meter.explain(), "warnings": [str(warning.message) for warning in caught]}


def on_four_ranks(rank: int) -> dict[str, Any]:
    from flopcalc.distributed import metering_group, replica_of

    results = {
        "data parallel": metered(rank),
        # ranks 0, 1 and 2, 3 share a batch, as tensor and context parallel ranks do
        "pairs": metered(rank, replica=rank // 2, batches=BATCHES[rank // 2]),
        # only the first pipeline stage sees the batch
        "stages": metered(rank, replica=rank // 2, batches=BATCHES[rank // 2] if rank % 2 == 0 else []),
        "disagreeing": metered(rank, replica=rank // 2, batches=[[10 + rank]]),
        "mixed devices": metered(rank, peak=(1e9, 1e9, 3e9, 5e8)[rank]),
        "one unknown peak": metered(rank, peak=None if rank == 2 else 1e9),
    }
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_shard", "tp"))
    results["replica of mesh"] = replica_of(mesh)
    try:
        replica_of(dist.init_device_mesh("cpu", (4,), mesh_dim_names=("tp",)))
    except InvalidOption as error:
        results["no dp in mesh"] = str(error)

    words = MfuMeter(QWEN3, peak_flops=1e30, group=metering_group())
    words.add_flops(2**63 - 1 + rank, tokens=2**62)
    results["wide"] = words.step(elapsed_seconds=1.0)

    faulty = MfuMeter(QWEN3, peak_flops=1e9, group=dist.group.WORLD)
    faulty.add([100])
    try:
        faulty.step(elapsed_seconds=math.nan if rank == 3 else 1.0)
    except (InvalidBatch, InvalidOption) as error:
        results["fault"] = f"{type(error).__name__}: {error}"
    faulty.add([100])
    results["after fault"] = faulty.step(elapsed_seconds=2.0)["perf/tokens"]
    return results


def on_two_ranks(rank: int) -> dict[str, Any]:
    calls = []

    def noted(name: str, call: Any) -> Any:
        return lambda *args, **kwargs: (calls.append(name), call(*args, **kwargs))[1]

    for name in ("all_gather", "all_reduce", "all_gather_into_tensor", "broadcast", "barrier", "all_gather_object"):
        setattr(dist, name, noted(name, getattr(dist, name)))
    results = metered(rank)
    results["collectives"] = calls
    alone = dist.new_group([0])
    if rank == 1:
        try:
            gather(combine_share(0), alone)
        except InvalidOption as error:
            results["not in group"] = str(error)
    return results


def with_one_rank_that_lags(rank: int) -> dict[str, Any]:
    return meter_with_late_rank(rank, lambda: time.sleep(5))


def with_one_rank_that_dies(rank: int) -> dict[str, Any]:
    def die() -> None:
        raise SystemExit(3)

    return meter_with_late_rank(rank, die)


def meter_with_late_rank(rank: int, late: Any) -> dict[str, Any]:
    meter = MfuMeter(QWEN3, peak_flops=1e9, group=dist.group.WORLD)
    meter.add([100])
    meter.step(elapsed_seconds=1.0)
    meter.add([60])
    if rank == 1:
        late()
    begun, error = time.monotonic(), ""
    try:
        meter.step(elapsed_seconds=1.0)
    except RuntimeError as failure:
        error = str(failure)
    waited = time.monotonic() - begun
    meter.group = None  # what a survivor counted is still there
    meter.add([7])
    return {"error": error, "waited": waited, "logs": meter.step(elapsed_seconds=1.0)}


# --- starting them -----------------------------------------------------------------------------------


def _rank(rank: int, ranks: int, task: Any, folder: Path, timeout: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=timeout),
    )
    (folder / f"{rank}.json").write_text(json.dumps(task(rank)))
    if timeout > 10:
        dist.destroy_process_group()


def run(ranks: int, task: Any, folder: Path, timeout: float = 60) -> list[Any]:
    """What each rank answered; None for a rank that died."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "flopcalc.mfu"])
    workers = [context.Process(target=_rank, args=(rank, ranks, task, folder, timeout)) for rank in range(ranks)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        if worker.is_alive():
            worker.kill()
    files = [folder / f"{rank}.json" for rank in range(ranks)]
    return [json.loads(file.read_text()) if file.exists() else None for file in files]


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return run(4, on_four_ranks, tmp_path_factory.mktemp("four"))


def alone(batches, seconds: float, devices: int, peak: float) -> dict[str, float]:
    """The truth: one process that was fed everything."""
    meter = MfuMeter(QWEN3, peak_flops=peak, devices=devices)
    for lengths in batches:
        meter.add(lengths)
    return meter.step(elapsed_seconds=seconds)


# --- what must come out ------------------------------------------------------------------------------


def test_data_parallel_ranks_with_mixed_lengths_equal_one_process_that_did_it_all(four):
    truth = alone([lengths for batches in BATCHES for lengths in batches], max(SECONDS), 4, 1e9)
    for answer in four:
        assert answer["data parallel"]["logs"] == pytest.approx(truth, rel=1e-12)
        record = answer["data parallel"]["record"]
        assert record["flops"] == truth["perf/model_flops"]
        assert (record["ranks"], record["replicas"], record["devices"]) == (4, 4, 4)
        assert answer["data parallel"]["warnings"] == []


@pytest.mark.parametrize("kind", ["pairs", "stages"])
def test_ranks_that_share_a_batch_count_it_once_and_all_their_devices(four, kind):
    truth = alone([*BATCHES[0], *BATCHES[1]], max(SECONDS), 4, 1e9)
    for answer in four:
        assert answer[kind]["logs"] == pytest.approx(truth, rel=1e-12)
        assert (answer[kind]["record"]["ranks"], answer[kind]["record"]["replicas"]) == (4, 2)
        assert answer[kind]["warnings"] == []


def test_ranks_of_one_replica_that_count_differently_are_warned_about(four):
    truth = alone([[11], [13]], max(SECONDS), 4, 1e9)
    for answer in four:
        assert answer["disagreeing"]["logs"]["perf/model_flops"] == truth["perf/model_flops"]
        (message,) = answer["disagreeing"]["warnings"]
        assert "replicas 0, 1" in message


def test_the_peak_of_mixed_devices_is_their_sum(four):
    flops = alone([lengths for batches in BATCHES for lengths in batches], 1.0, 4, 1e9)["perf/model_flops"]
    for answer in four:
        assert answer["mixed devices"]["record"]["peak_flops_per_second"] == 5.5e9
        assert answer["mixed devices"]["logs"]["perf/mfu"] == pytest.approx(flops / 2.5 / 5.5e9)


def test_one_unknown_peak_takes_mfu_away_from_all_and_nothing_else(four):
    for rank, answer in enumerate(four):
        logs = answer["one unknown peak"]["logs"]
        assert not [key for key in logs if "mfu" in key]
        assert logs["perf/model_flops"] == four[0]["data parallel"]["logs"]["perf/model_flops"]
        (message,) = answer["one unknown peak"]["warnings"]
        assert ("a device of no table" in message) == (rank == 2)


def test_a_device_mesh_tells_the_replica(four):
    assert [answer["replica of mesh"] for answer in four] == [0, 0, 1, 1]
    assert "('tp',)" in four[0]["no dp in mesh"]


def test_sums_past_64_bits_are_exact(four):
    for answer in four:
        assert answer["wide"]["perf/model_flops"] == 4 * (2**63 - 1) + 0 + 1 + 2 + 3
        assert answer["wide"]["perf/tokens"] == 2**64


def test_a_rank_without_a_valid_time_stops_no_other_and_loses_nothing(four):
    assert [answer["fault"].partition(":")[0] for answer in four] == ["InvalidBatch"] * 3 + ["InvalidOption"]
    assert "ranks 3" in four[0]["fault"]
    assert [answer["after fault"] for answer in four] == [800] * 4


def test_two_ranks_take_a_single_collective(tmp_path):
    answers = run(2, on_two_ranks, tmp_path)
    truth = alone([*BATCHES[0], *BATCHES[1]], 2.5, 2, 1e9)
    for answer in answers:
        assert answer["logs"] == pytest.approx(truth, rel=1e-12)
        assert answer["collectives"] == ["all_gather"]
    assert "not in the process group" in answers[1]["not in group"]


def test_a_rank_that_lags_costs_the_others_one_time_out_and_no_totals(tmp_path):
    first, second = run(2, with_one_rank_that_lags, tmp_path, timeout=1)
    assert first["error"]
    assert first["waited"] < 4
    for answer in (first, second):
        # 200 tokens of both ranks before, then 60 + 7 of this one
        if answer["error"]:
            assert answer["logs"]["perf/tokens"] == 67
            assert answer["logs"]["perf/lifetime_tokens"] == 267


def test_a_rank_that_dies_leaves_an_error_and_no_hang(tmp_path):
    first, second = run(2, with_one_rank_that_dies, tmp_path, timeout=4)
    assert second is None
    assert first["error"]
    assert first["waited"] < 10
    assert first["logs"]["perf/lifetime_tokens"] == 267


# --- without processes -------------------------------------------------------------------------------


def combine_share(replica: int, flops: int = 10, **changes: Any) -> Share:
    return Share(replica, flops, flops, 1, 1, 1.0, 1.0, 1, 1.0)._replace(**changes)


@settings(deadline=None)
@given(
    st.integers(0, 2**31),
    st.lists(st.integers(0, 2**186 - 1), min_size=4, max_size=4),
    st.lists(st.floats(0, 1e300), min_size=2, max_size=2),
    st.one_of(st.none(), st.floats(1, 1e30)),
)
def test_a_share_survives_its_words(replica, counts, times, peak):
    share = Share(replica, *counts, *times, 8, peak)
    words = encode(share)
    assert all(-(2**63) <= word < 2**63 for word in words)
    assert decode(words) == share


def test_a_share_too_large_for_its_words_is_named():
    with pytest.raises(InvalidBatch, match="2\\*\\*186"):
        encode(combine_share(0, flops=2**186))


def test_a_process_alone_is_a_group_of_one():
    share = combine_share(0, flops=7, seconds=2.0, wall_seconds=3.0, devices=8, peak_flops_per_second=5.0)
    assert gather(share) == combine([share])
    assert gather(share)[:10] == (7, 7, 1, 1, 2.0, 3.0, 8, 5.0, 1, 1)
