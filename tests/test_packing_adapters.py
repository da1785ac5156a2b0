"""The adapters, each against the contract of the real thing."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flopcalc
from flopcalc import InvalidBatch, InvalidOption
from flopcalc.integrations.seqlen_balancing import get_seqlen_balanced_partitions, workload

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

from flopcalc.integrations.batch_sampler import FlopBatchSampler, dataset_lengths  # noqa: E402

COUNTER = flopcalc.FlopCounter({"model_type": "llama"})


@pytest.fixture(scope="module")
def verl() -> Any:
    try:
        return importlib.import_module("verl.utils.seqlen_balancing")
    except ImportError as error:
        pytest.skip(f"verl: {error}")


# --- verl's get_seqlen_balanced_partitions -------------------------------------------------------


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=60),
    st.integers(1, 8),
    st.booleans(),
)
def test_partitions_keep_the_contract_of_verl(seqlen_list: list[int], k: int, equal_size: bool) -> None:
    if len(seqlen_list) < k or (equal_size and len(seqlen_list) % k):
        with pytest.raises(InvalidBatch):  # verl asserts
            get_seqlen_balanced_partitions(seqlen_list, k, equal_size)
        return
    partitions = get_seqlen_balanced_partitions(seqlen_list, k_partitions=k, equal_size=equal_size)
    assert len(partitions) == k
    assert all(partitions) and all(part == sorted(part) for part in partitions)
    assert sorted(place for part in partitions for place in part) == list(range(len(seqlen_list)))
    if equal_size:
        assert {len(part) for part in partitions} == {len(seqlen_list) // k}
    assert all(type(place) is int for part in partitions for place in part)


def test_numbers_without_a_counter_are_balanced_as_they_are() -> None:
    partitions = get_seqlen_balanced_partitions([7, 3, 5, 5], 2, equal_size=False)
    assert sorted(sum([7, 3, 5, 5][place] for place in part) for part in partitions) == [10, 10]


def test_lengths_with_a_counter_are_balanced_by_flops() -> None:
    lengths = [8192, 8192] + [1024] * 16
    partitions = get_seqlen_balanced_partitions(lengths, 2, False, counter=COUNTER)
    assert [sorted(lengths[place] for place in part) for part in partitions] == [[1024] * 8 + [8192]] * 2


def test_the_workload_of_a_tensor_is_a_tensor_of_flops() -> None:
    lengths = torch.tensor([4096, 300])
    flops = workload(COUNTER)(lengths)
    assert flops.dtype == torch.int64 and flops.tolist() == [COUNTER([4096]), COUNTER([300])]


@pytest.mark.parametrize("equal_size", [False, True])
def test_partitions_are_as_level_as_those_of_the_real_verl(verl: Any, equal_size: bool) -> None:
    for seed in range(5):
        values = np.random.default_rng(seed).integers(1, 32768, 512).tolist()

        def heaviest(partitions: list[list[int]], values: list[int] = values) -> int:
            return max(sum(values[place] for place in part) for part in partitions)

        theirs = heaviest(verl.get_seqlen_balanced_partitions(values, 16, equal_size))
        assert heaviest(get_seqlen_balanced_partitions(values, 16, equal_size)) <= theirs * 1.0001


def test_the_real_verl_runs_on_flops(verl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tensordict = pytest.importorskip("tensordict")
    monkeypatch.setattr(verl, "calculate_workload", workload(COUNTER))
    monkeypatch.setattr(verl, "get_seqlen_balanced_partitions", get_seqlen_balanced_partitions)
    lengths = np.random.default_rng(0).integers(1, 512, 64)
    mask = torch.arange(512)[None] < torch.tensor(lengths)[:, None]
    batch = tensordict.TensorDict({"input_ids": mask.long(), "attention_mask": mask.long()}, batch_size=[64])
    micro_batches, places = verl.rearrange_micro_batches(batch, max_token_len=4096)
    assert sorted(place for part in places for place in part) == list(range(64))
    assert all(lengths[part].sum() <= 4096 for part in places)
    flops = [COUNTER(lengths[part]) for part in places]
    assert max(flops) <= 1.001 * sum(flops) / len(flops)
    assert [len(micro_batch) for micro_batch in micro_batches] == list(map(len, places))


# --- torch's batch sampler -----------------------------------------------------------------------


def samplers(seq_lens: Any, num_ranks: int, **options: Any) -> list[FlopBatchSampler]:
    options = {"max_tokens": 4096, "counter": COUNTER, **options}
    return [FlopBatchSampler(seq_lens, num_ranks=num_ranks, rank=rank, **options) for rank in range(num_ranks)]


@settings(max_examples=50)
@given(
    st.lists(st.integers(1, 512), min_size=64, max_size=200),
    st.integers(1, 4),
    st.sampled_from([None, 40, 64]),
    st.booleans(),
)
def test_ranks_share_every_document_in_as_many_batches_under_the_cap(
    seq_lens: list[int], num_ranks: int, documents_per_step: int | None, shuffle: bool
) -> None:
    ranks = [list(s) for s in samplers(seq_lens, num_ranks, documents_per_step=documents_per_step, shuffle=shuffle)]
    assert len({len(batches) for batches in ranks}) == 1
    assert sorted(i for batches in ranks for batch in batches for i in batch) == list(range(len(seq_lens)))
    assert all(0 < sum(seq_lens[i] for i in batch) <= 4096 for batches in ranks for batch in batches)


def test_a_dataloader_yields_the_batches_and_knows_their_number() -> None:
    seq_lens = np.random.default_rng(0).integers(1, 1024, 300)
    dataset = [torch.full((n,), i) for i, n in enumerate(seq_lens)]
    (sampler,) = samplers(seq_lens, 1)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=torch.cat)
    batches = list(loader)
    assert len(loader) == len(sampler) == len(batches)
    assert max(len(batch) for batch in batches) <= 4096
    assert torch.equal(torch.cat(batches).bincount(), torch.tensor(seq_lens))


def test_an_epoch_is_drawn_anew_by_its_number_alone() -> None:
    seq_lens = np.random.default_rng(0).integers(1, 1024, 300)
    first, again = samplers(seq_lens, 1) + samplers(seq_lens, 1)
    epoch0 = list(first)
    assert list(first) == epoch0 == list(again)
    first.set_epoch(1)
    again.set_epoch(1)
    assert list(first) == list(again) != epoch0
    first.set_epoch(0)
    assert list(first) == epoch0


def test_steps_group_the_micro_batches_between_two_optimizer_steps() -> None:
    (sampler,) = samplers(np.full(1000, 512), 1, documents_per_step=96)
    assert [len(step) for step in sampler.steps] == [13] * 10  # 100 documents a step, 8 a micro-batch
    assert [batch for step in sampler.steps for batch in step] == list(sampler)


def test_steps_are_level_across_ranks() -> None:
    seq_lens = np.random.default_rng(0).integers(1, 4096, 4000)
    ranks = samplers(seq_lens, 4, max_tokens=16384, documents_per_step=1000)
    for steps in zip(*(sampler.steps for sampler in ranks), strict=True):
        flops = np.array([[COUNTER(seq_lens[batch]) for batch in step] for step in steps], dtype=float)
        assert flops.max(axis=0).sum() <= 1.01 * flops.sum() / 4


def test_rank_and_number_of_ranks_come_from_torch_distributed(tmp_path: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        sampler = FlopBatchSampler([8] * 4, max_tokens=16, counter=COUNTER)
        assert (sampler.rank, sampler.num_ranks, len(sampler)) == (0, 1, 2)
    finally:
        torch.distributed.destroy_process_group()


def test_a_sampler_without_documents_has_no_batches() -> None:
    (sampler,) = samplers([], 1)
    assert list(sampler) == [] and len(sampler) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [({"num_ranks": 2, "rank": 2}, "rank"), ({"documents_per_step": 0}, "documents_per_step")],
)
def test_impossible_options_of_a_sampler_are_named(options: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        FlopBatchSampler([8] * 4, max_tokens=16, counter=COUNTER, **options)


def test_a_document_above_the_cap_is_named_by_the_sampler_too() -> None:
    (sampler,) = samplers([8, 5000], 1)
    with pytest.raises(InvalidBatch, match="5000"):
        len(sampler)


# --- Hugging Face datasets -----------------------------------------------------------------------


def test_a_dataset_is_sampled_by_the_lengths_of_its_documents() -> None:
    datasets = pytest.importorskip("datasets")
    seq_lens = np.random.default_rng(0).integers(1, 512, 200)
    rows = {"input_ids": [[i] * n for i, n in enumerate(seq_lens)], "text": ["-"] * 200}
    dataset = datasets.Dataset.from_dict(rows).shuffle(seed=0).select(range(150))
    sampler = FlopBatchSampler.from_dataset(dataset, max_tokens=4096, counter=COUNTER)
    assert sampler.seq_lens.tolist() == [len(ids) for ids in dataset["input_ids"]]
    batches = list(DataLoader(dataset, batch_sampler=sampler, collate_fn=lambda rows: [r["input_ids"] for r in rows]))
    assert sorted(ids[0] for batch in batches for ids in batch) == sorted(ids[0] for ids in dataset["input_ids"])
    assert all(sum(map(len, batch)) <= 4096 for batch in batches)


def test_lengths_may_stand_in_a_column_of_numbers() -> None:
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"length": [5, 3], "text": ["a", "b"], "input_ids": [[1], None]})
    assert dataset_lengths(dataset, "length").tolist() == [5, 3]
    assert len(dataset_lengths(dataset.select([]), "length")) == 0
    with pytest.raises(InvalidOption, match="'nothing'"):
        dataset_lengths(dataset, "nothing")
    with pytest.raises(InvalidOption, match="string"):
        dataset_lengths(dataset, "text")
    with pytest.raises(InvalidBatch, match="input_ids"):
        dataset_lengths(dataset)
