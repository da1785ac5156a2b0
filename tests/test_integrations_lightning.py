"""The callback in a real Lightning Trainer, on the CPU, with a clock set by hand."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flopcalc

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch")
transformers = pytest.importorskip("transformers")

from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.loggers.logger import Logger  # noqa: E402

from flopcalc.integrations.lightning import MfuCallback  # noqa: E402

PEAK = 2e9
QWEN3 = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
    "vocab_size": 64,
}
LENGTHS = (5, 9, 3, 7, 12, 1, 8, 2)
COUNT = flopcalc.FlopCounter(QWEN3)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Model(lightning.LightningModule):
    """A batch of training takes 1 s, one of validation 100 s."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.inner = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**QWEN3))

    def training_step(self, batch: Any, _: int) -> Any:
        self.clock.now += 1
        batch = batch if isinstance(batch, dict) else {"input_ids": batch}
        return self.inner(**batch, labels=batch["input_ids"]).loss

    def validation_step(self, batch: Any, _: int) -> None:
        self.clock.now += 100

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class Memory(Logger):
    """Keeps the figures of ours that are logged."""

    def __init__(self) -> None:
        super().__init__()
        self.logged: list[tuple[int, dict[str, float]]] = []

    name = version = "memory"

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if "perf/tokens" in metrics:
            self.logged.append((step, metrics))

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass


def batches(as_mapping: bool = True) -> list[Any]:
    ids = [torch.arange(1, n + 1)[None] for n in LENGTHS]
    return [{"input_ids": row, "attention_mask": row > 0} for row in ids] if as_mapping else ids


def run(folder: Any, *, data: Any = None, resume: str | None = None, model: Any = QWEN3, **arguments: Any):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    clock, memory = Clock(), Memory()
    options = arguments.pop("options", {"peak_flops": PEAK})
    callback = MfuCallback(model, clock=clock, **options)
    defaults = {"max_epochs": 1, "log_every_n_steps": 2, "enable_checkpointing": False}
    trainer = lightning.Trainer(
        accelerator="cpu",
        callbacks=[callback, *arguments.pop("callbacks", [])],
        logger=memory,
        default_root_dir=str(folder),
        enable_progress_bar=False,
        enable_model_summary=False,
        **{**defaults, **arguments},
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = torch.utils.data.DataLoader(batches() if data is None else data, batch_size=None)
        trainer.fit(Model(clock), loader, loader, ckpt_path=resume)
    torch.set_num_threads(threads)
    return trainer, callback, memory.logged, [str(w.message) for w in caught if "training goes on" in str(w.message)]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_logged_mfu_is_flops_over_seconds_over_peak(tmp_path, accumulation):
    _, callback, logged, _ = run(tmp_path, accumulate_grad_batches=accumulation, val_check_interval=1)
    assert [step for step, _ in logged] == list(range(2, 8 // accumulation + 1, 2))
    for place, (_, figures) in enumerate(logged):
        lengths = LENGTHS[2 * accumulation * place : 2 * accumulation * (place + 1)]
        assert figures["perf/model_flops"] == sum(COUNT([n]) for n in lengths)
        assert figures["perf/seconds"] == 2 * accumulation  # and none of the validations after every batch
        assert figures["perf/mfu"] == pytest.approx(sum(COUNT([n]) for n in lengths) / (2 * accumulation) / PEAK)
    record = callback.explain()
    assert logged[-1][1]["perf/mfu"] == record["flops"] / (record["seconds"] * record["peak_flops_per_second"])
    assert record["lifetime"]["seconds"] == 8.0


def test_a_resume_carries_the_totals(tmp_path):
    checkpoint = ModelCheckpoint(tmp_path, every_n_train_steps=3, save_top_k=-1, filename="{step}")
    run(tmp_path, max_steps=3, enable_checkpointing=True, callbacks=[checkpoint])
    _, callback, logged, _ = run(tmp_path, resume=str(tmp_path / "step=3.ckpt"))
    assert [step for step, _ in logged] == [4, 6, 8]
    assert [figures["perf/seconds"] for _, figures in logged] == [1.0, 2.0, 2.0]
    # the loader begins anew: Lightning skips no batches
    assert logged[0][1]["perf/model_flops"] == COUNT([LENGTHS[0]])
    assert callback.explain()["lifetime"]["flops"] == sum(COUNT([n]) for n in (*LENGTHS[:3], *LENGTHS[:5]))
    assert callback.explain()["lifetime"]["seconds"] == 8.0


def test_a_batch_that_is_no_mapping_is_read_by_a_function_of_ones_own(tmp_path):
    options = {"peak_flops": PEAK, "lengths": lambda batch: [batch.shape[1]] * batch.shape[0]}
    _, callback, _, messages = run(tmp_path, data=batches(as_mapping=False), options=options)
    assert callback.explain()["lifetime"]["tokens"] == sum(LENGTHS)
    assert messages == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": {"model_type": "qwen33"}}, "'qwen33'"),
        ({"data": batches(as_mapping=False)}, "expected a mapping"),
        ({"options": {"peak_flops": 0}}, "peak: found 0"),
    ],
)
def test_a_fault_warns_once_and_training_goes_on(tmp_path, arguments, words):
    trainer, _, _, messages = run(tmp_path, **arguments)
    assert trainer.global_step == len(LENGTHS)
    (message,) = messages
    assert words in message
