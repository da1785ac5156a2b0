"""MFU in the logs of the transformers Trainer:

from flopcalc.integrations.transformers import MfuCallback

trainer = Trainer(..., callbacks=[MfuCallback(device="H100-SXM")])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback

from flopcalc.config import read_config
from flopcalc.distributed import metering_group
from flopcalc.errors import InvalidConfig, UnsupportedModel
from flopcalc.estimators import describe
from flopcalc.heads import CLASSIFIERS
from flopcalc.integrations.door import Door, guarded, synchronize
from flopcalc.integrations.trained import training_of
from flopcalc.tree import walk

__all__ = ["MfuCallback"]

_STATE = "flopcalc"


class MfuCallback(TrainerCallback):
    """Adds the figures of `flopcalc.MfuMeter` to what the Trainer logs about training.

    A hook on the model sees every training forward, with gradient accumulation, padded and packed
    collators and adapters alike. Evaluation is paused. Intervals close where the Trainer logs, and
    where it saves, so that a checkpoint holds the run's totals up to it; they are taken up on a
    resume.

    Args:
        model: how to count, as for `MfuMeter`; default the config of the trained model, with what learns
            in it (its LoRA adapters, what is frozen).
        lengths: a function from the model's inputs to `flopcalc.Documents` or document lengths, where
            the inputs' own fields (see `flopcalc.lengths.mark_batch`) do not tell them.
        options: those of `MfuMeter`: device, peak_flops, dtype, recompute, convention, ...

    A fault of metering (an unknown model type, an unknown device, a batch that tells no lengths) is
    warned about once, and training goes on.
    """

    def __init__(self, model: Any = None, *, lengths: Callable[[Any], Any] | None = None, **options: Any) -> None:
        self.door = Door(lengths, options)
        self._model = model
        self._hook: Any = None
        self._closed_at = 0  # the global step of the last closed interval

    def attach(self, trainer: Any) -> MfuCallback:
        """Add the callback to a trainer ahead of its reporters. The Trainer puts callbacks of its
        argument behind them: then the console and the log history show the figures, and TensorBoard
        or W&B do not."""
        trainer.callback_handler.callbacks.insert(1, self)  # behind DefaultFlowCallback, which sets the flags
        return self

    def explain(self) -> dict[str, Any]:
        """The record behind the figures (`MfuMeter.explain`); empty without a meter."""
        return {} if self.door.meter is None else self.door.meter.explain()

    @guarded
    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self._unhook()
        self._closed_at = state.global_step
        self.door.meter = None
        sharded = [name for name in ("cp_size", "sp_size") if _size(args, name) > 1]
        if sharded:
            self.door.warn(
                f"{', '.join(sharded)} above 1: the model sees shards of the documents, so nothing is measured; "
                f"feed the whole lengths to a flopcalc.MfuMeter"
            )
            return
        found: dict[str, Any] = {"group": metering_group(), "devices": max(1, args.n_gpu)}
        if found["group"] is not None:
            # tensor parallel ranks are neighbours, in the mesh of accelerate and of transformers
            found["replica"] = found["group"].rank() // (getattr(model, "_tp_size", None) or _size(args, "tp_size"))
        if self._model is None:
            self.door.open(_config(model), training=training_of(model), **found)
            self._check_head(model)
        else:
            self.door.open(self._model, **found)
        if self.door.meter is not None and _STATE in state.stateful_callbacks:
            self.door.meter.load_state_dict(state.stateful_callbacks[_STATE])
        watch = torch.compiler.disable(self._watch)  # type: ignore[no-untyped-call]
        self._hook = model.register_forward_pre_hook(watch, with_kwargs=True)

    def _check_head(self, model: Any) -> None:
        """A head that is neither a language model's nor a plain classifier is not known."""
        tree = getattr(self.door.meter and self.door.meter.counter, "tree", None)
        counted = tree is not None and any(
            t.kind == "head" and visit.path not in CLASSIFIERS for visit in walk(tree) for t in visit.tensors
        )
        if counted and getattr(model, "get_output_embeddings", lambda: True)() is None:
            self.door.warn(
                f"{type(model).__name__} has no language model head, but one is counted; pass MfuCallback(model=) a "
                f"counter of its own"
            )

    @guarded
    def _watch(self, module: Any, args: Any, kwargs: Any) -> None:
        if module.training and torch.is_grad_enabled():
            self.door.watch({"input_ids": args[0], **kwargs} if args else kwargs)

    @guarded
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.door.resume()
        if self.door.meter is not None:
            self.door.meter.start()

    @guarded
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if control.should_save and not control.should_log:
            synchronize()
            self._close(state)
        if control.should_evaluate and not control.should_log:
            self.door.pause()

    on_epoch_end = on_step_end

    @guarded
    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        meter = self.door.meter
        if logs is None or meter is None or meter.paused:
            return
        figures = self._close(state)
        logs.update(figures)
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update(figures)
        if control.should_evaluate:
            self.door.pause()

    def _close(self, state: Any) -> dict[str, float]:
        """Close the interval unless no optimizer step has been since the last; all ranks agree on that."""
        if state.global_step == self._closed_at:
            return {}
        self._closed_at = state.global_step
        figures = self.door.close()
        if self.door.meter is not None:
            state.stateful_callbacks[_STATE] = self.door.meter.state_dict()  # saved with the trainer's state
        return figures

    @guarded
    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.door.pause()  # an evaluation that no flag announced

    @guarded
    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.door.resume()

    @guarded
    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        self.door.resume()

    @guarded
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._unhook()

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def _config(model: Any) -> Any:
    """The config of a model or of what wraps it, with the class that it really is."""
    config = getattr(model, "config", None)
    if config is None:
        raise InvalidConfig(
            f"model: found {type(model).__name__} without a config; pass MfuCallback(model=) a config or a counter, "
            f"such as flopcalc.integrations.torch.FlopCounter(model)"
        )
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    model_type, fields = read_config(config)
    as_built = {**fields, "model_type": model_type, "architectures": [type(base).__name__]}
    try:  # a config loaded for a classifier still names the class of its file
        describe(as_built)
    except UnsupportedModel:
        return config
    return as_built


def _size(args: Any, name: str) -> int:
    """A size of accelerate's ParallelismConfig."""
    return getattr(getattr(args, "parallelism_config", None), name, None) or 1
