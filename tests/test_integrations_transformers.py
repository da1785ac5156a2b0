"""The callback in a real Trainer, on the CPU, with tiny models and a clock set by hand."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import warnings
from typing import Any

import pytest

import flopcalc
from flopcalc import hardware

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from flopcalc.integrations.transformers import MfuCallback  # noqa: E402

PEAK = 2e9
LENGTHS = (5, 9, 3, 7, 12, 1, 8, 2) * 4
DATA = [{"input_ids": list(range(1, n + 1)), "labels": list(range(1, n + 1))} for n in LENGTHS]
QWEN3 = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
    "vocab_size": 64,
}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Trainer(transformers.Trainer):
    """A Trainer whose work takes a set time: a micro-batch 1 s, a batch of evaluation 100 s, a
    checkpoint 10 s. It notes the true lengths of each micro-batch: token 1 begins a document."""

    def __init__(self, *args: Any, clock: Clock, **kwargs: Any) -> None:
        self.clock = clock
        self.seen: list[list[int]] = []
        super().__init__(*args, **kwargs)

    def training_step(self, model: Any, inputs: Any, *args: Any) -> Any:
        ids = [token for token in inputs["input_ids"].flatten().tolist() if token]
        begins = [place for place, token in enumerate(ids) if token == 1]
        self.seen.append([end - begin for begin, end in zip(begins, [*begins[1:], len(ids)], strict=True)])
        self.clock.now += 1
        return super().training_step(model, inputs, *args)

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        self.clock.now += 100
        return super().prediction_step(*args, **kwargs)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self.clock.now += 10
        super()._save_checkpoint(*args, **kwargs)


class Recorder(transformers.TrainerCallback):
    """What was logged, with the record behind it."""

    def __init__(self, callback: MfuCallback) -> None:
        self.callback = callback
        self.logged: list[tuple[dict[str, float], dict[str, Any]]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.logged.append((dict(logs), self.callback.explain()))


def padded(features: list[dict[str, list[int]]]) -> dict[str, Any]:
    width = max(len(feature["input_ids"]) for feature in features)
    ids = torch.tensor([feature["input_ids"] + [0] * (width - len(feature["input_ids"])) for feature in features])
    return {"input_ids": ids, "labels": ids.masked_fill(ids == 0, -100), "attention_mask": (ids != 0).long()}


@pytest.fixture(autouse=True)
def registered_peak(monkeypatch):
    monkeypatch.setattr(hardware, "_registered", {})
    flopcalc.register_device("cpu", {"bf16": PEAK})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def qwen3(**changes: Any) -> Any:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**{**QWEN3, **changes}))


def build(folder: Any, model: Any = None, *, options: dict[str, Any] | None = None, packed: bool = False, **arguments):
    clock = Clock()
    callback = MfuCallback(clock=clock, **(options or {}))
    recorder = Recorder(callback)
    defaults = {
        "max_steps": 4,
        "logging_steps": 2,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 2,
    }
    trainer = Trainer(
        qwen3() if model is None else model,
        transformers.TrainingArguments(str(folder), **{**defaults, **arguments}),
        train_dataset=DATA,
        eval_dataset=DATA[:4],
        data_collator=transformers.DataCollatorWithFlattening() if packed else padded,
        callbacks=[callback, recorder],
        clock=clock,
    )
    return trainer, callback, recorder


def figures(recorder: Recorder) -> list[tuple[dict[str, float], dict[str, Any]]]:
    return [(logs, record) for logs, record in recorder.logged if "perf/tokens" in logs]


def check(recorder: Recorder, seen: list[list[int]], micro_batches: int, count: Any) -> None:
    """Every logged MFU is FLOPs / seconds / peak, of the micro-batches of its interval and their time."""
    logged = figures(recorder)
    assert len(logged) * micro_batches == len(seen)
    for place, (logs, record) in enumerate(logged):
        batches = seen[place * micro_batches : (place + 1) * micro_batches]
        assert record["flops"] == sum(count(lengths) for lengths in batches)
        assert record["tokens"] == sum(map(sum, batches))
        assert record["seconds"] == logs["perf/seconds"]
        assert (record["peak_flops_per_second"], record["peak_source"]) == (PEAK, "registered")
        assert logs["perf/mfu"] == pytest.approx(record["flops"] / record["seconds"] / PEAK, rel=1e-12)


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_the_logged_mfu_is_flops_over_seconds_over_peak(tmp_path, packed, accumulation):
    trainer, _, recorder = build(
        tmp_path,
        packed=packed,
        gradient_accumulation_steps=accumulation,
        eval_strategy="steps",
        eval_steps=1,  # between the logs of steps 2 and 4, too
    )
    trainer.train()
    check(recorder, trainer.seen, 2 * accumulation, flopcalc.FlopCounter({"model_type": "qwen3", **QWEN3}))
    # 800 s of evaluation and more went by, and none of it is in the intervals
    assert [record["seconds"] for _, record in figures(recorder)] == [2 * accumulation] * 2
    assert sum("eval_loss" in logs for logs, _ in recorder.logged) == 4
    assert not [key for logs, _ in recorder.logged if "eval_loss" in logs for key in logs if key.startswith("perf/")]
    assert figures(recorder)[0][1]["padded_tokens"] == 0 if packed else figures(recorder)[0][1]["padded_tokens"] > 0
    history = [entry for entry in trainer.state.log_history if "perf/mfu" in entry]
    assert [entry["perf/mfu"] for entry in history] == [logs["perf/mfu"] for logs, _ in figures(recorder)]


# 4 FLOPs a token for each of the 20,672 weights that a token meets (9,216 of projections and 80 of norms in
# each of 2 layers, 32 of the last norm, 2,048 of the head), 6 for each of the 896 of the adapters
# (2 layers of 4 * (32 + 32) on q_proj and 4 * (32 + 16) on v_proj), dense pairs as in full training
def lora_flops(lengths: list[int]) -> int:
    return sum(n * (4 * 20_672 + 6 * 896) + 12 * 2 * 32 * n * n for n in lengths)


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_a_lora_model_counts_its_adapters_and_no_gradient_of_frozen_weights(tmp_path, packed, accumulation):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(qwen3(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    trainer, _, recorder = build(
        tmp_path,
        model,
        packed=packed,
        gradient_accumulation_steps=accumulation,
        eval_strategy="steps",
        eval_steps=2,
    )
    trainer.train()
    check(recorder, trainer.seen, 2 * accumulation, lora_flops)
    assert [record["seconds"] for _, record in figures(recorder)] == [2 * accumulation] * 2


def test_frozen_modules_take_no_weight_gradient(tmp_path):
    model = qwen3()
    model.model.embed_tokens.requires_grad_(False)
    model.model.layers.requires_grad_(False)  # the last norm and the head learn
    trainer, _, recorder = build(tmp_path, model)
    trainer.train()
    # forward everywhere, no gradient below the last norm, no input gradient of the norm
    check(
        recorder,
        trainer.seen,
        2,
        lambda lengths: sum(n * (2 * 18_592 + 4 * 32 + 6 * 2_048) + 4 * 2 * 32 * n * n for n in lengths),
    )


def test_a_classifier_is_counted_as_such_whatever_class_its_file_names(tmp_path):
    named = {"num_labels": 3, "architectures": ["Qwen3ForCausalLM"], "pad_token_id": 0}
    model = transformers.Qwen3ForSequenceClassification(transformers.Qwen3Config(**QWEN3, **named))
    trainer, callback, _ = build(tmp_path, model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        callback.on_train_begin(trainer.args, trainer.state, trainer.control, model=trainer.model)
    tree = callback.door.meter.counter.tree
    assert dict(tree.parameters()) == {name: tuple(weight.shape) for name, weight in model.named_parameters()}


def test_a_model_without_a_language_model_head_is_warned_about(tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes))
    trainer, callback, _ = build(tmp_path, model)
    with pytest.warns(UserWarning, match="no language model head"):
        callback.on_train_begin(trainer.args, trainer.state, trainer.control, model=trainer.model)


def test_a_resume_carries_the_totals_and_feeds_nothing_to_the_next_interval(tmp_path):
    first, _, recorder = build(tmp_path, save_strategy="steps", save_steps=3, max_steps=3)
    first.train()
    assert [record["seconds"] for _, record in figures(recorder)] == [2.0]  # step 3 closed with the checkpoint

    second, callback, recorder = build(tmp_path, max_steps=6)
    second.clock.now += 10**6  # the time between the two runs
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    counter = flopcalc.FlopCounter({"model_type": "qwen3", **QWEN3})
    (logs, record), (later, last) = figures(recorder)
    assert (record["flops"], record["seconds"]) == (counter(second.seen[0]), 1.0)
    assert (last["flops"], last["seconds"]) == (sum(map(counter, second.seen[1:])), 2.0)
    assert logs["perf/mfu"] == pytest.approx(record["flops"] / 1.0 / PEAK)
    assert later["perf/lifetime_tokens"] == sum(map(sum, first.seen + second.seen))
    assert later["perf/lifetime_model_flops"] == sum(map(counter, first.seen + second.seen))
    assert callback.explain()["lifetime"]["seconds"] == 6.0


def test_a_checkpoint_of_a_run_without_the_callback_resumes(tmp_path):
    trainer, callback, _ = build(tmp_path, save_strategy="steps", save_steps=2, max_steps=2)
    trainer.remove_callback(callback)
    trainer.train()
    trainer, callback, _ = build(tmp_path, max_steps=4, save_strategy="steps", save_steps=4)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert callback.explain()["lifetime"]["tokens"] == sum(map(sum, trainer.seen))


def test_a_checkpoint_is_time_of_the_run(tmp_path):
    trainer, _, recorder = build(tmp_path, save_strategy="steps", save_steps=2)
    trainer.train()
    assert [record["seconds"] for _, record in figures(recorder)] == [2.0, 2.0 + 10.0]


def test_evaluation_before_training_and_unannounced_is_left_out(tmp_path):
    class Evaluate(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 1:
                trainer.evaluate()

    trainer, _, recorder = build(tmp_path, eval_on_start=True, eval_strategy="epoch")
    trainer.add_callback(Evaluate())
    trainer.train()
    seconds = [record["seconds"] for _, record in figures(recorder)]
    # what no flag announces is noticed after its first batch of 100 s
    assert seconds == [2.0 + 100.0, 2.0]


def test_reporters_see_the_figures_of_an_attached_callback(tmp_path):
    trainer, callback, _ = build(tmp_path, eval_strategy="steps", eval_steps=1)
    reporter = Recorder(callback)
    trainer.callback_handler.callbacks.insert(1, reporter)  # where TensorBoard and W&B stand
    trainer.remove_callback(callback)
    assert callback.attach(trainer) is callback
    trainer.train()
    assert len(figures(reporter)) == 2
    assert [record["seconds"] for _, record in figures(reporter)] == [2.0, 2.0]


def test_the_last_log_closes_what_is_open(tmp_path):
    trainer, callback, recorder = build(tmp_path, max_steps=3)
    trainer.train()
    assert "train_runtime" in recorder.logged[-1][0]
    assert recorder.logged[-1][0]["perf/seconds"] == 1.0
    assert callback.explain()["lifetime"]["tokens"] == sum(map(sum, trainer.seen))
    assert not trainer.model._forward_pre_hooks


# --- two processes -----------------------------------------------------------------------------------


def _rank(rank: int, folder: Any, port: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    torch.set_num_threads(1)
    flopcalc.register_device("cpu", {"bf16": PEAK * (1 + rank)})
    trainer, _, recorder = build(folder, ddp_backend="gloo")
    trainer.train()
    answer = {"seen": trainer.seen, "logged": figures(recorder)}
    (folder / f"{rank}.json").write_text(json.dumps(answer))
    torch.distributed.destroy_process_group()


def test_two_processes_sum_their_work_and_their_peaks(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["transformers.trainer", "flopcalc.integrations.transformers"])
    workers = [context.Process(target=_rank, args=(rank, tmp_path, port)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    answers = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    counter = flopcalc.FlopCounter({"model_type": "qwen3", **QWEN3})
    assert answers[0]["logged"][0][1]["replicas"] == 2
    for place in range(2):
        flops = sum(counter(lengths) for answer in answers for lengths in answer["seen"][2 * place : 2 * place + 2])
        for answer in answers:
            logs, record = answer["logged"][place]
            assert (record["flops"], record["seconds"], record["devices"]) == (flops, 2.0, 2)
            assert logs["perf/mfu"] == pytest.approx(flops / 2.0 / (3 * PEAK))


# --- faults: training goes on ------------------------------------------------------------------------


def train(trainer: Any) -> list[str]:
    """Train, and give the warnings of ours."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert trainer.train().global_step == trainer.args.max_steps
    return [str(warning.message) for warning in caught if "training goes on" in str(warning.message)]


def test_d2_an_unknown_model_type_warns_once_with_the_nearest_and_trains(tmp_path):
    model = qwen3()
    model.config.model_type = "qwen33"
    trainer, callback, recorder = build(tmp_path, model)
    (message,) = train(trainer)
    assert "'qwen33'" in message
    assert "qwen3" in message.replace("qwen33", "")
    assert figures(recorder) == []
    assert callback.explain() == {}


def test_an_exception_in_the_callback_warns_once_and_keeps_the_other_batches(tmp_path):
    def lengths(inputs: Any) -> list[int]:
        if len(trainer.seen) in (2, 3):
            raise KeyError("no lengths here")
        return trainer.seen[-1]

    trainer, callback, _ = build(tmp_path, options={"lengths": lengths})
    (message,) = train(trainer)
    assert "KeyError" in message
    assert callback.explain()["lifetime"]["tokens"] == sum(trainer.seen[0] + trainer.seen[3])


def test_a_batch_that_cannot_be_read_warns_once_and_keeps_the_others(tmp_path):
    def lengths(inputs: Any) -> list[int]:
        return [-1] if len(trainer.seen) == 1 else trainer.seen[-1]

    trainer, callback, _ = build(tmp_path, options={"lengths": lengths})
    (message,) = train(trainer)
    assert "seq_lens[0]: found -1" in message
    assert callback.explain()["lifetime"]["tokens"] == sum(map(sum, trainer.seen[1:]))


@pytest.mark.parametrize(
    ("options", "words"),
    [({"peak_flops": 0}, "peak: found 0"), ({"device": "H100"}, "several parts"), ({"dtype": "bf17"}, "bf17")],
)
def test_a_peak_that_cannot_be_had_leaves_the_other_figures(tmp_path, options, words):
    trainer, _, recorder = build(tmp_path, options=options)
    messages = train(trainer)
    assert words in messages[0]
    if "dtype" not in options:
        assert len(messages) == 1
        assert [logs["perf/seconds"] for logs, _ in figures(recorder)] == [2.0, 2.0]
        assert not [key for logs, _ in figures(recorder) for key in logs if "mfu" in key]


def test_a_clock_that_goes_back_skips_a_log_and_keeps_the_totals(tmp_path):
    trainer, callback, recorder = build(tmp_path, max_steps=6)

    class Jump(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step in (2, 3):
                trainer.clock.now += {2: -50, 3: 50}[state.global_step]

    trainer.add_callback(Jump())
    with pytest.warns(UserWarning, match="no time has passed"):
        trainer.train()
    # steps 1-4 in one interval, then 5 and 6
    assert [record["seconds"] for _, record in figures(recorder)] == [4.0, 2.0]
    assert callback.explain()["lifetime"]["tokens"] == sum(map(sum, trainer.seen))


def test_context_parallel_shards_are_not_measured(tmp_path):
    trainer, callback, _ = build(tmp_path)
    trainer.args.parallelism_config = type("Config", (), {"cp_size": 2, "sp_size": 1})()
    with pytest.warns(UserWarning, match="cp_size above 1"):
        callback.on_train_begin(trainer.args, trainer.state, trainer.control, model=trainer.model)
    assert callback.explain() == {}
