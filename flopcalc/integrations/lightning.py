"""MFU in the logs of Lightning:

from flopcalc.integrations.lightning import MfuCallback

trainer = Trainer(..., callbacks=[MfuCallback(config, device="H100-SXM")])
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from flopcalc.distributed import metering_group, replica_of
from flopcalc.integrations.door import Door, guarded, synchronize

if TYPE_CHECKING or find_spec("lightning"):
    from lightning.pytorch import Callback
else:  # the same under its older name
    from pytorch_lightning import Callback

__all__ = ["MfuCallback"]


class MfuCallback(Callback):
    """Sends the figures of `flopcalc.MfuMeter` to the trainer's loggers, every `log_every_n_steps`
    optimizer steps.

    Each training batch is counted as it comes from the loader; validation is paused. Intervals close at
    a log and at a checkpoint, which carries the run's totals.

    Args:
        model: how to count, as for `MfuMeter`: a config in any form, a counter or a callable.
        lengths: a function from a batch to `flopcalc.Documents` or document lengths, where the batch is
            no mapping with the fields of `flopcalc.lengths.mark_batch`.
        options: those of `MfuMeter`: device, peak_flops, dtype, recompute, training, ...

    A fault of metering is warned about once, and training goes on.
    """

    def __init__(self, model: Any, *, lengths: Callable[[Any], Any] | None = None, **options: Any) -> None:
        self.door = Door(lengths, options)
        self._model = model
        self._loaded: dict[str, Any] | None = None
        self._closed_at = 0  # the global step of the last closed interval

    def explain(self) -> dict[str, Any]:
        """The record behind the figures (`MfuMeter.explain`); empty without a meter."""
        return {} if self.door.meter is None else self.door.meter.explain()

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._closed_at = trainer.global_step
        self.door.meter = None
        found: dict[str, Any] = {"group": metering_group()}
        mesh = getattr(trainer.strategy, "device_mesh", None)
        if found["group"] is not None and "tensor_parallel" in (getattr(mesh, "mesh_dim_names", None) or ()):
            found["replica"] = replica_of(mesh, ["data_parallel"])
        self.door.open(self._model, **found)
        if self.door.meter is not None and self._loaded is not None:
            self.door.meter.load_state_dict(self._loaded)

    @guarded
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self.door.meter is not None:
            self.door.meter.start()
        self.door.watch(batch)

    @guarded
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        every = trainer.log_every_n_steps
        if every and trainer.global_step // every > self._closed_at // every:
            self._log(trainer)

    @guarded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer)

    def _log(self, trainer: Any) -> None:
        figures = self._close(trainer)
        for logger in trainer.loggers if figures else ():
            logger.log_metrics(figures, step=trainer.global_step)

    def _close(self, trainer: Any) -> dict[str, float]:
        """Close the interval unless no optimizer step has been since the last; all ranks agree on that."""
        if trainer.global_step == self._closed_at:
            return {}
        self._closed_at = trainer.global_step
        synchronize()
        return self.door.close()

    @guarded
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self.door.pause()

    @guarded
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.door.resume()

    @guarded
    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self._close(trainer)
        if self.door.meter is not None:  # Lightning has asked for state_dict() already
            checkpoint["callbacks"][self.state_key] = self.door.meter.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """The lifetime totals of the closed intervals."""
        return {} if self.door.meter is None else self.door.meter.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up lifetime totals when training starts."""
        self._loaded = dict(state_dict) or None
