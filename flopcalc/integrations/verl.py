"""verl's `FlopsCounter`, counted by flopcalc:

    from flopcalc.integrations.verl import FlopsCounter   # instead of verl.utils.flops_counter

The contract is that of verl 0.9; verl itself is not imported.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

from flopcalc.conventions import Convention
from flopcalc.counting import FlopCounter
from flopcalc.errors import FlopcalcError, InvalidOption
from flopcalc.hardware import resolve_peak

__all__ = ["FlopsCounter"]

_TERA = 10**12


class FlopsCounter:
    """Achieved and promised TFLOP/s of a batch.

    Args:
        config: the model's config, in any form that `flopcalc.FlopCounter` takes.
        convention: how to count. verl's own rules halve the pairs and count the embedding table; its
            numbers differ from `standard` by that.
        peak_flops, device, dtype: the peak of one device in FLOP/s, or where to look it up (default
            the device of this process).
        errors: "raise", or "warn": then what cannot be counted is warned about once and answered by
            NaN. verl answers an unknown model type by 0, and an unknown device by infinity.

    Raises UnsupportedModel, InvalidConfig, InvalidOption or UnknownDevice. A device without a known peak
    is warned about, and promises NaN.
    """

    def __init__(
        self,
        config: Any,
        *,
        convention: str | Convention = "standard",
        training: Any = None,
        peak_flops: float | None = None,
        device: Any = None,
        dtype: Any = "bf16",
        errors: Literal["raise", "warn"] = "raise",
    ) -> None:
        if errors not in ("raise", "warn"):
            raise InvalidOption(f"errors: found {errors!r}, expected 'raise' or 'warn'")
        self._warns = errors == "warn"
        self._warned = False
        self.counter: FlopCounter | None = None
        try:
            self.counter = FlopCounter(config, convention, training=training)
        except FlopcalcError as error:
            self._fault(error)
        peak = resolve_peak(device, dtype, peak=peak_flops)
        self._promised = math.nan if peak is None else peak.flops_per_second / _TERA

    def estimate_flops(
        self, batch_seqlens: Any, delta_time: float, images_seqlens: Any = None, **_: Any
    ) -> tuple[float, float]:
        """(achieved TFLOP/s of the whole batch, promised TFLOP/s of one device).

        Args:
            batch_seqlens: tokens of each document of the batch, over all devices.
            delta_time: seconds that the batch took.
            images_seqlens: patches of each image.

        Raises InvalidBatch or InvalidOption.
        """
        if self.counter is None:
            return math.nan, self._promised
        try:
            if isinstance(delta_time, bool) or not 0 < delta_time < math.inf:
                raise InvalidOption(f"delta_time: found {delta_time!r}, expected a finite number of seconds above 0")
            images = None if images_seqlens is None or len(images_seqlens) == 0 else images_seqlens
            return self.counter(batch_seqlens, images) / delta_time / _TERA, self._promised
        except FlopcalcError as error:
            self._fault(error)
            return math.nan, self._promised

    def _fault(self, error: FlopcalcError) -> None:
        if not self._warns:
            raise error
        if not self._warned:
            self._warned = True
            warnings.warn(f"flopcalc: {error} (achieved TFLOP/s are NaN)", UserWarning, stacklevel=3)
