"""What the callbacks of every trainer do alike: they build the meter when training begins, watch
batches without waiting for the device, and never stop training."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from flopcalc.errors import FlopcalcError, InvalidBatch
from flopcalc.hardware import resolve_peak
from flopcalc.lengths import Marks, mark_batch
from flopcalc.mfu import MfuMeter

__all__ = ["Door", "guarded", "synchronize"]

_READ_AT = 64  # batches that wait unread at most
_MEDIA = {
    "pixel_values": "image_grid_thw",
    "pixel_values_videos": "video_grid_thw",
    "input_features": None,
    "input_values": None,
}
"""What a batch holds beside text, and the field that says its size: (frames, height, width) in patches."""

Method = TypeVar("Method", bound=Callable[..., Any])


def guarded(method: Method) -> Method:
    """A method of an object with a `door`, whose failure is warned about once and goes no further."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # metering never stops training
            self.door.fault(error)
            return None

    return cast(Method, call)


def synchronize() -> None:
    """Wait for the accelerator, so that the clock and the device agree."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.accelerator.is_available():
        torch.accelerator.synchronize()


class Door:
    """A meter behind a trainer's callback.

    Args:
        lengths: what tells the documents of a batch where its own fields do not: a function from the
            batch to `Documents` or their lengths.
        options: those of `MfuMeter`.
    """

    def __init__(self, lengths: Callable[[Any], Any] | None, options: dict[str, Any]) -> None:
        self.meter: MfuMeter | None = None
        self._lengths = lengths
        self._options = options
        self._unread: list[tuple[Any, list[Any]]] = []
        self._lost = False
        self._warned: set[str] = set()

    def open(self, model: Any, **found: Any) -> None:
        """Build the meter. What the user gave comes before what the callback `found` out; a peak that
        cannot be had leaves the other figures."""
        self.meter, self._unread, self._lost = None, [], False
        options = {**found, **self._options}
        peak = None
        try:
            peak = resolve_peak(options.get("device"), options.get("dtype", "bf16"), peak=options.get("peak_flops"))
        except FlopcalcError as error:
            self.fault(error)
        meter = MfuMeter(model, **{**options, "peak_flops": 1.0})
        meter.peak = peak
        self.meter = meter

    def watch(self, batch: Any) -> None:
        """Count a batch, later: its lengths are read when the interval closes, or in bundles."""
        if self.meter is None or self.meter.paused:
            return
        grids = self._grids(batch) if isinstance(batch, Mapping) else []
        if self._lengths is not None:
            self._unread.append((self._lengths(batch), grids))
        elif isinstance(batch, Mapping):
            self._unread.append((mark_batch(batch), grids))
        else:
            raise InvalidBatch(
                f"batch: found {type(batch).__name__}, expected a mapping; pass lengths=, a function of it"
            )
        if len(self._unread) >= _READ_AT:
            self._read()

    def _grids(self, batch: Mapping[str, Any]) -> list[Any]:
        """The sizes of the batch's images and videos."""
        media = [name for name in _MEDIA if batch.get(name) is not None]
        grids = {name: batch.get(size) for name in media if (size := _MEDIA[name])}
        if unsized := [name for name in media if grids.get(name) is None]:
            self.warn(f"the batch holds {', '.join(unsized)} of a size it does not say: only the text is counted")
        return [grid for grid in grids.values() if grid is not None]

    def _read(self) -> None:
        unread, self._unread = self._unread, []
        for documents, grids in unread:
            self._add(documents, grids)

    def _add(self, documents: Any, grids: list[Any]) -> None:
        assert self.meter is not None
        try:
            images = [size for grid in grids for size in grid.tolist()]
            self.meter.add(documents.read() if isinstance(documents, Marks) else documents, images or None)
        except Exception as error:  # the other batches still count
            self.fault(error)

    def close(self) -> dict[str, float]:
        """Close the interval: its figures as floats, none where there is no meter, or no longer a group
        that answers."""
        if self.meter is None or self._lost:
            return {}
        self._read()
        try:
            return {name: float(value) for name, value in self.meter.step().items()}
        except FlopcalcError:  # on all ranks alike
            raise
        except Exception:  # of torch.distributed: another rank failed or was too late
            self._lost = True
            raise

    def pause(self) -> None:
        """Leave the time until `resume` out."""
        if self.meter is not None and not self.meter.paused:
            synchronize()
            self._read()  # what was watched before the pause counts
            self.meter.pause()

    def resume(self) -> None:
        """End a pause."""
        if self.meter is not None:
            self.meter.resume()

    def fault(self, error: Exception) -> None:
        """Warn of an error, once for each message."""
        what = str(error) if isinstance(error, FlopcalcError) else f"{type(error).__name__}: {error}"
        self.warn(what)

    def warn(self, message: str) -> None:
        """Warn once for each message."""
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(f"flopcalc: {message} (training goes on)", UserWarning, stacklevel=3)
