"""The meter in one process: rates, scopes, pauses, state, and what happens when something is wrong."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flopcalc
from flopcalc import Documents, InvalidBatch, InvalidOption, MfuMeter, Training, UnknownDevice, UnsupportedModel

TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 256,
}
# 6 * 90,112 matrix weights and 320 norm weights a token, dense pairs: 12 * 2 layers * 64 * 128 a token
TINY_128 = 128 * 6 * (90_112 + 320) + 12 * 2 * 64 * 128 * 128

LLAMA = {"model_type": "llama"}


class Clock:
    """A clock that tests set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def flops_of_tokens(seq_lens) -> int:
    """A counter of one's own: 10 FLOPs a token."""
    return 10 * int(sum(seq_lens))


def meter_of(clock=None, **options) -> MfuMeter:
    options.setdefault("peak_flops", 1000.0)
    return MfuMeter(flops_of_tokens, **options) if clock is None else MfuMeter(flops_of_tokens, clock=clock, **options)


# --- rates -------------------------------------------------------------------------------------------


def test_c1_the_micro_batches_of_a_step_are_summed():
    meter = MfuMeter(TINY, peak_flops=1e9)
    for _ in range(8):
        meter.add([128])
    logs = meter.step(elapsed_seconds=2.0)
    assert logs["perf/model_flops"] == 8 * TINY_128
    assert logs["perf/tflops_per_device"] == pytest.approx(8 * TINY_128 / 2 / 1e12, rel=1e-15)
    assert logs["perf/mfu"] == pytest.approx(8 * TINY_128 / 2e9, rel=1e-15)


def test_c2_mfu_divides_by_the_peak_of_all_devices():
    meter = meter_of(peak_flops=989.5e12, devices=8)
    meter.add_flops(1545_380_000_000_000, tokens=4096)
    logs = meter.step(elapsed_seconds=1.0)
    assert round(100 * logs["perf/mfu"], 2) == 19.52
    assert logs["perf/tflops_per_device"] == pytest.approx(193.1725)
    assert (logs["perf/tokens_per_second"], logs["perf/tokens_per_second_per_device"]) == (4096, 512)
    assert "perf/hfu" not in logs


def test_c3_equal_intervals_have_equal_rates_and_a_second_start_is_harmless(clock):
    meter = meter_of(clock)
    clock.now += 50  # set-up, before the run
    meter.start()
    rates, totals = [], []
    for _ in range(3):
        meter.add([30])
        clock.now += 1
        meter.start()
        clock.now += 2
        logs = meter.step()
        rates.append(logs["perf/mfu"])
        totals.append((logs["perf/lifetime_model_flops"], logs["perf/lifetime_seconds"]))
    assert rates == [0.1, 0.1, 0.1]
    assert totals == [(300, 3.0), (600, 6.0), (900, 9.0)]


def test_c4_a_paused_evaluation_is_left_out_of_the_net_rate_and_kept_in_the_wall_rate(clock):
    meter = meter_of(clock)
    meter.start()
    meter.add([1100])
    clock.now += 6
    with meter.pause():
        clock.now += 5
        meter.add([10**6])  # the evaluation's own work
    clock.now += 4
    clock.now += 1  # a checkpoint, not paused
    logs = meter.step()
    assert logs["perf/model_flops"] == 11000
    assert (logs["perf/mfu"], logs["perf/wall_mfu"]) == (1000 / 1000, 11000 / 16 / 1000)
    assert (logs["perf/tflops_per_device"], logs["perf/wall_tflops_per_device"]) == (1000e-12, 687.5e-12)
    assert meter.explain()["wall_seconds"] - meter.explain()["seconds"] == 5


def test_c5_the_unit_stands_in_the_key():
    meter = meter_of(peak_flops=1e15)
    meter.add_flops(30_949_010_000_000)
    logs = meter.step(elapsed_seconds=1.0)
    assert round(logs["perf/tflops_per_device"], 2) == 30.95
    assert all(key.startswith("perf/") and isinstance(value, (int, float)) for key, value in logs.items())


def test_c6_a_step_over_two_optimizer_steps_covers_the_flops_and_seconds_of_both(clock):
    meter = meter_of(clock)
    meter.start()
    for _ in range(2):
        meter.add([100])
        clock.now += 3
    assert meter.step()["perf/mfu"] == 2000 / 6 / 1000
    meter.add([100])
    clock.now += 0.001  # the host ran ahead of the device; the caller knows better
    assert meter.step(elapsed_seconds=4.0)["perf/mfu"] == 1000 / 4 / 1000
    clock.now += 2  # the next interval begins at the step, not at some earlier time
    meter.add([100])
    assert meter.step()["perf/mfu"] == 1000 / 2 / 1000


def test_c7_every_logged_value_follows_from_the_record():
    meter = MfuMeter(LLAMA, device="H100 SXM", devices=4, recompute=0.5, window=2)
    for seconds in (3.0, 7.0, 2.0):
        meter.add(Documents([4096, 300], 8192))
        logs = meter.step(elapsed_seconds=seconds)
    record = json.loads(json.dumps(meter.explain()))
    assert (
        record["flops"] == 200_805_132_042_240
    )  # 6 * 4396 * (6,607,077,376 + 266,240) + 12 * 32 * 4096 * (4096**2 + 300**2)
    assert (record["seconds"], record["devices"], record["peak_flops_per_second"]) == (2.0, 4, 4 * 989.5e12)
    assert (record["peak_source"], record["dtype"], record["convention"]) == ("table", "bf16", "standard")
    mfu = record["flops"] / (record["seconds"] * record["peak_flops_per_second"])
    assert logs["perf/mfu"] == pytest.approx(mfu, rel=1e-15)
    assert logs["perf/hfu"] == pytest.approx(mfu * (3 + record["recompute"]) / 3, rel=1e-15)
    assert logs["perf/padding_fraction"] == pytest.approx(record["padded_tokens"] / 8192)
    assert logs["perf/tokens_per_second"] == record["tokens"] / record["seconds"]
    for scope in ("window", "lifetime"):
        totals = record[scope]
        assert logs[f"perf/{scope}_mfu"] == pytest.approx(totals["flops"] / totals["peak_flops"], rel=1e-15)
    assert (record["window"]["seconds"], record["lifetime"]["seconds"]) == (9.0, 12.0)


@pytest.mark.parametrize(("recompute", "ratio"), [("full", 4 / 3), (1, 4 / 3), (0.5, 3.5 / 3), (0, 1)])
def test_a14_recomputation_raises_hfu_and_leaves_mfu(recompute, ratio):
    meter = meter_of(recompute=recompute)
    meter.add([10])
    logs = meter.step(elapsed_seconds=1.0)
    assert logs["perf/mfu"] == 0.1
    assert logs["perf/hfu"] == pytest.approx(0.1 * ratio, rel=1e-15)


def test_hfu_follows_what_the_training_runs_again():
    head = 2 * 64 * 10 * 4  # FLOPs of a pass of the output head: 4 tokens, 64 wide, a vocabulary of 10
    config = {"model_type": "llama", "hidden_size": 64, "vocab_size": 10, "num_hidden_layers": 0}
    for training, shares in (({}, (3, 4)), ({"trained": ("lm_head",)}, (2, 3))):  # of the head's passes
        meter = MfuMeter(config, convention="exact", training=Training(**training), recompute="full", peak_flops=1e9)
        meter.add([4])
        logs = meter.step(elapsed_seconds=1.0)
        assert logs["perf/mfu"] == shares[0] * head / 1e9
        assert logs["perf/hfu"] == shares[1] * head / 1e9
    meter = MfuMeter(config, convention="exact", phase="forward", recompute=0.5, peak_flops=1e9)
    meter.add([4])
    logs = meter.step(elapsed_seconds=1.0)
    assert logs["perf/mfu"] == logs["perf/hfu"] == head / 1e9


def test_a_counter_that_knows_its_recomputation_sets_hfu_by_itself():
    training = Training(recompute="selective")
    meter = MfuMeter(flopcalc.FlopCounter(TINY, training=training), peak_flops=1e12)
    meter.add([100, 28])
    logs = meter.step(elapsed_seconds=1.0)
    attention = flopcalc.FlopCounter(TINY, phase="forward").by_kind([100, 28])["attention"]
    assert logs["perf/hfu"] - logs["perf/mfu"] == pytest.approx(attention / 1e12, rel=1e-9)
    with pytest.raises(InvalidOption, match="selective"):
        MfuMeter(lambda lengths: 1, peak_flops=1e12, recompute="selective")
    meter.add([10])
    before = meter._share(1.0, 1.0)
    with pytest.raises(InvalidOption, match="add_flops"):
        meter.add_flops(10)
    assert meter._share(1.0, 1.0) == before


@pytest.mark.parametrize("form", ["list", "tuple", "iterator", "numpy", "torch", "documents"])
@pytest.mark.parametrize("model", ["config", "counter", "callable"])
def test_every_form_of_model_and_of_lengths_counts_the_same(model, form):
    torch = pytest.importorskip("torch")
    lengths, counter = [128, 7, 0, 31], flopcalc.FlopCounter(TINY)
    meter = MfuMeter({"config": TINY, "counter": counter, "callable": counter.__call__}[model], peak_flops=1e12)
    forms = {
        "list": lengths,
        "tuple": tuple(lengths),
        "iterator": iter(lengths),
        "numpy": np.array(lengths),
        "torch": torch.tensor(lengths),
        "documents": Documents(lengths, 300),
    }
    meter.add(forms[form])
    logs = meter.step(elapsed_seconds=1.0)
    assert (logs["perf/model_flops"], logs["perf/tokens"]) == (counter(lengths), 166)


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1), st.floats(1e-3, 1e6), st.integers(1, 10**5))
def test_rates_are_totals_over_time(lengths, seconds, devices):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        meter = meter_of(devices=devices)
        meter.add_flops(1)
        meter.add(lengths)
        logs = meter.step(elapsed_seconds=seconds)
    flops = 10 * sum(lengths) + 1
    assert logs["perf/model_flops"] == flops
    assert logs["perf/mfu"] * seconds * devices * 1000 == pytest.approx(flops)


def test_totals_beyond_64_bits_are_exact():
    meter = meter_of(peak_flops=1e18)
    for _ in range(4):
        meter.add_flops(2**62 + 1)
    with pytest.warns(UserWarning, match="above the peak"):
        assert meter.step(elapsed_seconds=1.0)["perf/model_flops"] == 2**64 + 4


def test_the_window_forgets_and_the_lifetime_does_not():
    meter = meter_of(window=2)
    for tokens in (1, 10, 20):
        meter.add([tokens])
        logs = meter.step(elapsed_seconds=1.0)
    assert logs["perf/window_mfu"] == pytest.approx(0.15)
    assert logs["perf/lifetime_tokens"] == 31


# --- peaks -------------------------------------------------------------------------------------------


def test_d3_the_argument_comes_before_the_environment_and_that_before_the_table(monkeypatch):
    def source(**options):
        meter = MfuMeter(TINY, device="H100 SXM", **options)
        return meter.explain()["peak_source"], meter.explain()["peak_flops_per_second"]

    assert source() == ("table", 989.5e12)
    monkeypatch.setenv("FLOPCALC_PEAK_FLOPS", "123e12")
    assert source() == ("environment", 123e12)
    assert source(peak_flops=5e12) == ("argument", 5e12)


def test_an_unknown_device_gives_every_figure_but_mfu_and_one_warning():
    with pytest.warns(UserWarning, match="Foo Accelerator 9000") as caught:
        meter = MfuMeter(TINY, device="Foo Accelerator 9000", recompute="full")
        for _ in range(3):
            meter.add([128])
            logs = meter.step(elapsed_seconds=1.0)
    assert len(caught) == 1
    assert logs["perf/tokens_per_second"] == 128
    assert not [key for key in logs if "mfu" in key or "hfu" in key]
    assert meter.explain()["peak_flops_per_second"] is None


def test_a_rate_above_the_peak_is_returned_flagged_and_warned_about_once_with_its_parts():
    meter = meter_of(devices=2)
    with pytest.warns(UserWarning) as caught:
        for _ in range(2):
            meter.add_flops(9000)
            logs = meter.step(elapsed_seconds=1.5)
    assert logs["perf/mfu"] == 3.0
    assert logs["perf/implausible"] == 1
    assert meter.explain()["implausible"] is True
    (message,) = [str(warning.message) for warning in caught]
    for part in ("9000 FLOPs", "1.5 s", "2 x", "argument", "6000 FLOP/s", "2000"):
        assert part in message


def test_recomputation_that_passes_the_peak_is_implausible_although_mfu_is_not():
    meter = meter_of(recompute="full")
    meter.add_flops(800)
    with pytest.warns(UserWarning, match="recompute 1"):
        logs = meter.step(elapsed_seconds=1.0)
    assert (logs["perf/mfu"], logs["perf/implausible"]) == (0.8, 1)


# --- state -------------------------------------------------------------------------------------------


def test_a_restart_carries_the_lifetime_and_feeds_nothing_to_the_next_interval(clock):
    meter = meter_of(clock)
    meter.add([100])
    clock.now += 10
    meter.step()
    meter.add([77])  # open work is not in the state
    state = json.loads(json.dumps(meter.state_dict()))

    later = meter_of(clock)
    clock.now += 1000  # loading the checkpoint
    later.load_state_dict(state)
    later.add([20])
    clock.now += 1
    logs = later.step()
    assert (logs["perf/mfu"], logs["perf/window_mfu"]) == (0.2, 0.2)
    assert (logs["perf/lifetime_tokens"], logs["perf/lifetime_seconds"]) == (120, 11)


def test_the_lifetime_mfu_stays_right_when_the_run_goes_on_with_other_devices():
    first = meter_of(devices=2)
    first.add_flops(1000)
    first.step(elapsed_seconds=1.0)
    second = meter_of(devices=6)
    second.load_state_dict(first.state_dict())
    second.add_flops(600)
    logs = second.step(elapsed_seconds=1.0)
    assert logs["perf/lifetime_mfu"] == 1600 / (2000 + 6000)  # not 1600 / (2 * 6000)


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {"version": 2, "lifetime": {}},
        {"version": 1},
        {"version": 1, "lifetime": {"flops": -1}},
        {"version": 1, "lifetime": {"seconds": math.nan}},
        {"version": 1, "lifetime": {"flops": 1.5}},
        {"version": 1, "lifetime": {"speed": 1}},
    ],
)
def test_a_state_that_is_none_of_ours_changes_nothing(state):
    meter = meter_of()
    meter.add([10])
    meter.step(elapsed_seconds=1.0)
    before = meter.state_dict()
    with pytest.raises(InvalidOption, match="load_state_dict"):
        meter.load_state_dict(state)
    assert meter.state_dict() == before


# --- faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elapsed", [0, 0.0, -1, math.nan, math.inf, "2", True, [1], 10**400])
def test_a_time_that_is_none_is_named_and_the_interval_loses_nothing(clock, elapsed):
    meter = meter_of(clock)
    meter.add([10])
    with pytest.raises(InvalidOption, match="elapsed_seconds"):
        meter.step(elapsed_seconds=elapsed)
    meter.add([10])
    assert meter.step(elapsed_seconds=1.0)["perf/lifetime_model_flops"] == 200


@pytest.mark.parametrize("batch", [[-1], [1.5], ["x"], None, 5, "8192", np.zeros((2, 2), int), [True]])
def test_a_bad_batch_is_named_and_counts_nothing(batch):
    for model in (TINY, flops_of_tokens):
        meter = MfuMeter(model, peak_flops=1e15)
        meter.add([128])
        with pytest.raises(InvalidBatch, match="seq_lens"):
            meter.add(batch)
        assert meter.step(elapsed_seconds=1.0)["perf/tokens"] == 128


def test_a_counter_that_gives_no_whole_number_is_named():
    meter = MfuMeter(lambda seq_lens: 1e15, peak_flops=1e15)
    with pytest.raises(InvalidOption, match="FLOPs of a batch"):
        meter.add([8])
    for flops in (-1, 0.5, None, True):
        with pytest.raises(InvalidOption, match="flops"):
            meter.add_flops(flops)


def test_a_step_without_add_gives_nothing_warns_once_and_stays_open(clock):
    meter = meter_of(clock)
    with pytest.warns(UserWarning, match="step\\(\\) without add\\(\\)") as caught:
        for _ in range(2):
            clock.now += 1
            assert meter.step() == {}
    assert len(caught) == 1
    meter.add([60])
    clock.now += 1
    logs = meter.step()
    assert (logs["perf/mfu"], logs["perf/lifetime_seconds"]) == (600 / 3 / 1000, 3)


def test_a_clock_that_goes_back_gives_no_rate_and_loses_no_work(clock):
    meter = meter_of(clock)
    meter.add([60])
    clock.now -= 5
    with pytest.warns(UserWarning, match="no time has passed"):
        assert meter.step() == {}
    clock.now += 15  # 10 s after the interval began
    meter.add([60])
    logs = meter.step()
    assert (logs["perf/model_flops"], logs["perf/seconds"]) == (1200, 10)


def test_a_clock_that_goes_back_in_a_pause_takes_no_time_away(clock):
    meter = meter_of(clock)
    meter.add([60])
    clock.now += 4
    meter.pause()
    clock.now -= 2
    meter.resume()
    clock.now += 4
    assert meter.step()["perf/seconds"] == 6


def test_pauses_may_nest_and_repeat(clock):
    meter = meter_of(clock)
    meter.resume()  # harmless
    meter.add([10])
    clock.now += 1
    with meter.pause():
        with meter.pause():
            clock.now += 10
        clock.now += 10  # still in the outer pause
    meter.pause()
    meter.pause()
    clock.now += 100
    meter.resume()
    clock.now += 1
    assert meter.step()["perf/seconds"] == 2


def test_a_step_inside_a_pause_closes_the_work_before_it(clock):
    meter = meter_of(clock)
    meter.add([10])
    clock.now += 2
    with meter.pause():
        clock.now += 5
        assert meter.step()["perf/seconds"] == 2
        clock.now += 5
    meter.add([10])
    clock.now += 1
    logs = meter.step()
    assert (logs["perf/seconds"], meter.explain()["wall_seconds"]) == (1, 6)


def test_a_pause_ends_when_the_evaluation_fails(clock):
    meter = meter_of(clock)
    with pytest.raises(ZeroDivisionError), meter.pause():
        raise ZeroDivisionError
    meter.add([10])
    clock.now += 1
    assert meter.step()["perf/tokens"] == 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"peak_flops": 0}, "peak"),
        ({"peak_flops": -1.0}, "peak"),
        ({"peak_flops": math.nan}, "peak"),
        ({"devices": 0}, "devices"),
        ({"devices": 1.5}, "devices"),
        ({"window": 0}, "window"),
        ({"recompute": 1.5}, "recompute"),
        ({"recompute": "some"}, "recompute"),
        ({"dtype": "bf17"}, "bf17"),
        ({"convention": "mine"}, "convention"),
        ({"phase": "backward"}, "phase"),
    ],
)
def test_an_option_that_does_not_fit_is_named(options, words):
    with pytest.raises(InvalidOption, match=words):
        MfuMeter(TINY, **{"peak_flops": 1e12, **options})


def test_options_of_counting_belong_to_a_config():
    with pytest.raises(InvalidOption, match="convention"):
        MfuMeter(flops_of_tokens, peak_flops=1e12, convention="exact")
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidOption, match=r"model\.config"):
        MfuMeter(torch.nn.Linear(2, 2), peak_flops=1e12)
    meter = MfuMeter(TINY, peak_flops=1e12, convention="exact", phase="forward")
    meter.add([128])
    # A6: 69,206,016 of linear work and 12,681,216 of causal pairs; a forward pass is a third
    assert meter.step(elapsed_seconds=1.0)["perf/model_flops"] == (69_206_016 + 12_681_216) // 3


def test_d2_an_unknown_model_type_is_named_with_the_nearest():
    with pytest.raises(UnsupportedModel, match=r"'qwen33'.*qwen3"):
        MfuMeter({"model_type": "qwen33"}, peak_flops=1e12)


def test_a_device_that_could_be_several_is_named():
    with pytest.raises(UnknownDevice, match="H100"):
        MfuMeter(TINY, device="H100")


# --- a loop of one's own -----------------------------------------------------------------------------


def test_the_documented_loop_meters_a_real_model_in_ten_lines():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    text = (Path(__file__).parent.parent / "docs" / "metering.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) == 10
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY))
    mask = torch.tensor([[1] * 8, [0] * 3 + [1] * 5])
    ids = torch.ones_like(mask)
    batch = {"input_ids": ids, "labels": ids, "attention_mask": mask}
    logged: list[dict[str, float]] = []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    exec(code, {"model": model, "loader": [batch] * 20, "optimizer": optimizer, "log": logged.append})
    counter = flopcalc.FlopCounter(TINY)
    assert [logs["perf/model_flops"] for logs in logged] == [10 * counter([8, 5])] * 2
    for logs in logged:
        assert logs["perf/mfu"] == pytest.approx(10 * counter([8, 5]) / logs["perf/seconds"] / 989.5e12)
        assert logs["perf/padding_fraction"] == pytest.approx(3 / 16)
