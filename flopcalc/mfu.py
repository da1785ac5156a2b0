"""Model FLOPs utilisation of a run: FLOPs that the model needs / (seconds * peak of the devices).

The meter is fed micro-batches and closed at the optimizer step:

    meter = MfuMeter(config, device="H100-SXM")
    meter.start()
    for batch in loader:
        meter.add(lengths_of(batch))
        ...                                # forward, backward, optimizer step
        logs = meter.step()                # {"perf/mfu": 0.41, ...}

Every figure is kept for three scopes: the interval just closed, a window of the last intervals, and
the lifetime of the run, which a state dict carries over a restart.
"""

from __future__ import annotations

import math
import operator
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from pydantic import ValidationError

from flopcalc.batch import read_lengths
from flopcalc.conventions import Convention
from flopcalc.counting import FlopCounter
from flopcalc.distributed import Interval, Share, combine, gather
from flopcalc.errors import InvalidBatch, InvalidOption
from flopcalc.hardware import Peak, read_precision, resolve_peak
from flopcalc.lengths import Documents
from flopcalc.totals import Totals
from flopcalc.training import Recompute, Training

__all__ = ["MfuMeter"]

_LOGGED = {
    "window_": ("mfu", "tflops_per_device", "tokens_per_second"),
    "lifetime_": ("mfu", "wall_mfu", "tflops_per_device", "model_flops", "tokens", "seconds"),
}
"""What is logged beside all figures of the interval."""


class MfuMeter:
    """Measures MFU and throughput of a training run.

    Args:
        model: a config in any form that `FlopCounter` takes, a `FlopCounter`, or any callable
            (seq_lens) or (seq_lens, images) -> FLOPs as an int.
        peak_flops: peak FLOP/s of one device, or what `resolve_peak` found; without it the environment
            variable FLOPCALC_PEAK_FLOPS, then the table, looked up for `device` (None: the device of this
            process) and `dtype`.
        devices: the number of devices that the work fed to this process runs on.
        convention, phase, training: how to count, given with a config (see `FlopCounter`).
        recompute: activations computed again in the backward pass, as `Training.recompute`, which it
            stands for: "full", "selective" or the fraction of the forward pass in [0, 1]. Adds
            `perf/hfu` by `hardware_flops()`; MFU never counts it. Of FLOPs that a callable counted or
            `add_flops` was given, a third is the forward pass.
        group: a torch.distributed process group of all training ranks; figures are then those of the
            whole group, and `step()` is one collective that every rank calls.
        replica: the data-parallel replica that this rank works for, default its rank (see
            `flopcalc.distributed`).
        window: the number of intervals that the `perf/window_` figures cover.
        clock: a monotonic clock in seconds.

    Raises UnsupportedModel, InvalidConfig, InvalidOption or UnknownDevice. A peak that is not known is
    warned about once, and all figures but MFU are logged.

    The meter's time begins with `start()`, or else with its construction.
    """

    def __init__(
        self,
        model: Any,
        *,
        peak_flops: float | Peak | None = None,
        device: Any = None,
        dtype: Any = "bf16",
        devices: int = 1,
        convention: str | Convention | None = None,
        phase: str | None = None,
        training: Any = None,
        recompute: Recompute | None = None,
        group: Any = None,
        replica: int | None = None,
        window: int = 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        options = {"convention": convention, "phase": phase, "training": training}
        self.counter, self.convention = _counter(model, _given(options))
        """What counts: (seq_lens, ...) -> FLOPs."""
        self.recompute, self._recomputed = _recomputing(self.counter, recompute)
        self.devices = _whole("devices", devices, least=1)
        self.peak = peak_flops if isinstance(peak_flops, Peak) else resolve_peak(device, dtype, peak=peak_flops)
        """The peak of one device and where it came from; None where it is not known, and MFU neither."""
        self.group = group
        self.replica = replica
        self.dtype = read_precision(dtype)
        self._clock = clock
        self._window: deque[Totals] = deque(maxlen=_whole("window", window, least=1))
        self._lifetime = Totals()
        self._interval: Interval | None = None
        self._warned: set[str] = set()
        self._started = False
        self._paused_at: float | None = None
        self._open()

    def _open(self) -> None:
        """Begin an interval now."""
        self._flops = self._hardware_flops = self._tokens = self._positions = 0
        self._began = self._clock()
        self._paused_seconds = 0.0
        if self._paused_at is not None:
            self._paused_at = self._began

    # --- feeding -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the first interval now, leaving out what came before; harmless when called again."""
        if not self._started:
            self._started = True
            if not self._flops:
                self._open()

    def add(self, seq_lens: Any, images: Any = None, audios: Any = None) -> None:
        """Count a micro-batch: the tokens of each document (or `Documents`), and its images and audios
        as the counter takes them. Inside `pause()` nothing is counted.

        Raises InvalidBatch, and counts nothing then.
        """
        positions = None
        if type(seq_lens) is not list:
            if isinstance(seq_lens, Documents):
                seq_lens, positions = seq_lens
            elif hasattr(seq_lens, "detach"):  # a torch tensor, read once
                seq_lens = seq_lens.detach().cpu().numpy()
            elif not hasattr(seq_lens, "sum"):  # a tuple or an iterator
                seq_lens = list(seq_lens) if isinstance(seq_lens, Iterable) else seq_lens
        media = {} if images is None and audios is None else _given({"images": images, "audios": audios})
        flops = self.counter(seq_lens, **media)
        if type(flops) is not int or flops < 0:
            flops = _whole("FLOPs of a batch", flops)
        if self._paused_at is None:
            again = self._recomputed
            recomputed = _share_of_step(flops, self.recompute) if again is None else again(seq_lens, **media)
            tokens = int(sum(seq_lens) if type(seq_lens) is list else seq_lens.sum())
            self._flops += flops
            self._hardware_flops += flops + recomputed
            self._tokens += tokens
            self._positions += tokens if positions is None else positions

    def add_flops(self, flops: int, tokens: int = 0) -> None:
        """Count work whose FLOPs are known, as `add` does. Raises InvalidOption."""
        flops, tokens = _whole("flops", flops), _whole("tokens", tokens)
        recomputed = _share_of_step(flops, self.recompute)
        if self._paused_at is None:
            self._flops += flops
            self._hardware_flops += flops + recomputed
            self._tokens += tokens
            self._positions += tokens

    def pause(self) -> _Pause:
        """Leave time and work out until `resume()`, as for an evaluation; also a context manager.
        Harmless when paused already."""
        already = self._paused_at is not None
        if not already:
            self._paused_at = self._clock()
        return _Pause(None if already else self)

    def resume(self) -> None:
        """End a pause; harmless without one."""
        if self._paused_at is not None:
            self._paused_seconds += max(0.0, self._clock() - self._paused_at)
            self._paused_at = None

    @property
    def paused(self) -> bool:
        """Whether the meter is in a pause."""
        return self._paused_at is not None

    # --- closing -------------------------------------------------------------------------------------

    def step(self, elapsed_seconds: float | None = None) -> dict[str, float]:
        """Close the interval and give its figures, with those of the window and the lifetime.

        Args:
            elapsed_seconds: the time of the interval without pauses, where the caller measured it (on
                an asynchronous device, between two synchronised points); else by the meter's clock.

        Where nothing was added, or no time has passed on the clock, there is no rate: the answer is
        empty, a warning says so once, and the interval stays open, with what it holds. Raises
        InvalidOption for an `elapsed_seconds` that is not above 0, InvalidBatch on all ranks where
        one had such a time, and what torch.distributed raises; the interval then stays open as well.
        """
        now = self._clock()
        paused = self._paused_seconds + (0.0 if self._paused_at is None else max(0.0, now - self._paused_at))
        seconds = now - self._began - paused
        fault = None
        if elapsed_seconds is not None:
            try:
                seconds = _seconds(elapsed_seconds)
            except InvalidOption as error:  # the other ranks wait for this one's share
                fault, seconds = error, math.nan
        try:
            interval = gather(self._share(seconds, seconds + paused), self.group)
        except InvalidBatch:
            if fault is not None:
                raise fault from None
            raise
        if interval.seconds <= 0:
            self._warn("time", "no time has passed on the clock, or it went back; the interval stays open")
            return {}
        if interval.flops == 0:
            self._warn("empty", "step() without add(): there is nothing to measure; the interval stays open")
            return {}
        self._interval = interval
        totals = Totals.of(interval)
        self._window.append(totals)
        self._lifetime += totals
        self._open()
        self._check(interval)
        return self._logs()

    def _share(self, seconds: float, wall_seconds: float) -> Share:
        replica = self.replica
        if replica is None:
            replica = 0 if self.group is None else self.group.rank()
        peak = None if self.peak is None else self.peak.flops_per_second * self.devices
        counts = self._flops, self._hardware_flops, self._tokens, self._positions
        return Share(replica, *counts, seconds, wall_seconds, self.devices, peak)

    def _check(self, interval: Interval) -> None:
        """Warn, once each, about what makes the figures doubtful."""
        if interval.disagreeing:
            self._warn(
                "replica",
                f"the ranks of replicas {', '.join(map(str, interval.disagreeing))} counted different work, and the "
                f"largest count of each was taken; feed every rank of a replica its whole documents",
            )
        if interval.peak_flops_per_second is None and self.peak is not None:
            self._warn("peak", "the peak of another rank's device is not known, so no MFU")
        if self.implausible:
            peak = self.peak
            assert peak is not None and interval.peak_flops_per_second is not None
            rate = interval.flops / interval.seconds
            self._warn(
                "implausible",
                f"measured {rate:.6g} FLOP/s, above the peak of {interval.peak_flops_per_second:.6g}: "
                f"{interval.flops} FLOPs in {interval.seconds:.6g} s on {interval.devices} x {peak.device or 'device'} "
                f"(peak from {peak.source}, {peak.dtype}), recompute {self.recompute}. Is the time too short (a device "
                f"that still works), the number of devices too small, or work counted twice?",
            )

    @property
    def implausible(self) -> bool:
        """Whether the last interval's rate is above the peak of its devices."""
        if self._interval is None:
            return False
        figures = self._figures(Totals.of(self._interval))
        return figures.get("hfu", figures.get("mfu", 0.0)) > 1

    def _logs(self) -> dict[str, float]:
        assert self._interval is not None
        logs = {f"perf/{name}": value for name, value in self._figures(Totals.of(self._interval)).items()}
        if self.implausible:
            logs["perf/implausible"] = 1.0
        for scope, totals in (("window_", self._over_window()), ("lifetime_", self._lifetime)):
            figures = self._figures(totals)
            logs |= {f"perf/{scope}{name}": figures[name] for name in _LOGGED[scope] if name in figures}
        return logs

    def _figures(self, totals: Totals) -> dict[str, float]:
        return totals.figures(self.recompute, counted=self._recomputed is not None)

    def _over_window(self) -> Totals:
        return sum(self._window, Totals())

    def explain(self) -> dict[str, Any]:
        """The record behind the figures, as plain values: `flops`, `seconds`, `devices` and the peak of
        all devices for the last closed interval (zeros before the first), where the peak came from, how
        FLOPs were counted, and the totals of the window and the lifetime.

        mfu = flops / (seconds * peak_flops_per_second), and hfu the same of hardware_flops; over a window
        or the lifetime, mfu = flops / peak_flops, where peak_flops is the sum of peak * seconds.
        """
        none = self._share(0.0, 0.0)._replace(flops=0, hardware_flops=0, tokens=0, positions=0)
        interval = self._interval or combine([none])
        peak = self.peak
        return {
            "flops": interval.flops,
            "hardware_flops": interval.hardware_flops,
            "tokens": interval.tokens,
            "padded_tokens": interval.positions - interval.tokens,
            "seconds": interval.seconds,
            "wall_seconds": interval.wall_seconds,
            "devices": interval.devices,
            "ranks": interval.ranks,
            "replicas": interval.replicas,
            "peak_flops_per_second": interval.peak_flops_per_second,
            "device": None if peak is None else peak.device,
            "device_peak_flops_per_second": None if peak is None else peak.flops_per_second,
            "peak_source": None if peak is None else peak.source,
            "peak_reference": None if peak is None else peak.reference,
            "dtype": self.dtype,
            "convention": self.convention,
            "recompute": self.recompute,
            "implausible": self.implausible,
            "window": self._over_window().model_dump(),
            "lifetime": self._lifetime.model_dump(),
        }

    # --- state ---------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The lifetime totals of the closed intervals, as plain values. In a process group every rank
        holds the same."""
        return {"version": 1, "lifetime": self._lifetime.model_dump()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the lifetime totals of `state_dict()`. Neither they nor the time since then enter the
        next interval. Raises InvalidOption, and changes nothing then."""
        self._lifetime = _read_totals(state)
        if not self._flops:
            self._open()

    def _warn(self, kind: str, message: str) -> None:
        """Warn once of each kind."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(f"MfuMeter: {message}", UserWarning, stacklevel=3)


class _Pause:
    """Resumes its meter at the end of a `with` block, if it was this pause that began it."""

    def __init__(self, meter: MfuMeter | None) -> None:
        self._meter = meter

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        if self._meter is not None:
            self._meter.resume()


# --- reading arguments -----------------------------------------------------------------------------


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _counter(model: Any, options: dict[str, Any]) -> tuple[Callable[..., int], str]:
    """(counts FLOPs, the convention's name)"""
    if hasattr(model, "named_parameters"):
        raise InvalidOption(
            f"model: found a module ({type(model).__name__}), expected its config (model.config), or "
            f"flopcalc.integrations.torch.FlopCounter(module) where it has none"
        )
    if not callable(model):
        model = FlopCounter(model, **options)
    elif options:
        raise InvalidOption(
            f"{', '.join(options)}: found with a counter of its own, expected with a config; build the counter with it"
        )
    if hasattr(model, "convention"):  # a counter of ours: it checks the lengths itself
        return model, model.convention.name

    def count(seq_lens: Any, **media: Any) -> int:
        read_lengths(seq_lens)
        return model(seq_lens, **media)  # type: ignore[no-any-return]

    return count, getattr(model, "__qualname__", type(model).__qualname__)


def _recomputing(counter: Any, recompute: Any) -> tuple[Recompute | None, Callable[..., int] | None]:
    """(what is computed again, what counts its FLOPs; None where the counter cannot tell)"""
    share = Training(recompute=1.0 if recompute == "full" else recompute).recompute
    if not isinstance(counter, FlopCounter):
        if share == "selective":
            raise InvalidOption(
                "recompute: found 'selective' with a counter of its own, expected 'full' or the recomputed fraction "
                "of the forward pass; pass a config, whose attention is known"
            )
        return share, None
    if share is None:
        share = 1.0 if counter.training.recompute == "full" else counter.training.recompute
    if share is None:
        return None, None
    training = counter.training.model_copy(update={"recompute": share})
    return share, FlopCounter(counter.tree, counter.convention, counter.phase, training).recomputed_flops


def _share_of_step(flops: int, share: Recompute | None) -> int:
    """The `share` of the forward pass of a full training step, of which that pass is a third."""
    if isinstance(share, str):
        raise InvalidOption(f"add_flops: found recompute {share!r}, expected a fraction or 'full': it needs lengths")
    return 0 if share is None else round(Fraction(str(share)) * flops / 3)


def _whole(name: str, value: Any, least: int = 0) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise InvalidOption(f"{name}: found {value!r}, expected a whole number >= {least}")
    return number


def _seconds(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        raise InvalidOption(f"elapsed_seconds: found {value!r}, expected a finite number of seconds above 0")
    return number


def _read_totals(state: Any) -> Totals:
    try:
        if state["version"] != 1:
            raise InvalidOption(f"load_state_dict: found version {state['version']!r}, expected 1")
        return Totals.model_validate(state["lifetime"])
    except (TypeError, KeyError, ValidationError) as error:
        raise InvalidOption(f"load_state_dict: found {state!r}, expected what state_dict() gave: {error}") from None
