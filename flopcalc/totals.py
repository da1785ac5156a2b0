"""Work done and the time it took: the sums from which every rate of a run follows."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from flopcalc.distributed import Interval
from flopcalc.training import Recompute

__all__ = ["Totals"]

_TERA = 10**12
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Totals(BaseModel):
    """Sums over closed intervals. `device_seconds` is the sum of devices * seconds and `peak_flops` that
    of peak * seconds, so that rates stay right when the number or kind of devices changes; `peak_flops`
    is None where a peak was unknown. The `wall_` times hold pauses too."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    steps: NonNegativeInt = 0
    flops: NonNegativeInt = 0
    hardware_flops: NonNegativeInt = 0
    tokens: NonNegativeInt = 0
    positions: NonNegativeInt = 0
    seconds: _Amount = 0.0
    device_seconds: _Amount = 0.0
    peak_flops: _Amount | None = 0.0
    wall_seconds: _Amount = 0.0
    wall_device_seconds: _Amount = 0.0
    wall_peak_flops: _Amount | None = 0.0

    @classmethod
    def of(cls, interval: Interval) -> Totals:
        """The totals of one closed interval."""
        seconds, wall, peak = interval.seconds, interval.wall_seconds, interval.peak_flops_per_second
        return cls(
            steps=1,
            flops=interval.flops,
            hardware_flops=interval.hardware_flops,
            tokens=interval.tokens,
            positions=interval.positions,
            seconds=seconds,
            device_seconds=seconds * interval.devices,
            peak_flops=None if peak is None else seconds * peak,
            wall_seconds=wall,
            wall_device_seconds=wall * interval.devices,
            wall_peak_flops=None if peak is None else wall * peak,
        )

    def __add__(self, other: Totals) -> Totals:
        mine, others = self.model_dump(), other.model_dump()
        pairs = {name: (mine[name], others[name]) for name in mine}
        return Totals.model_validate({name: None if None in pair else sum(pair) for name, pair in pairs.items()})

    def figures(self, recompute: Recompute | None, *, counted: bool = True) -> dict[str, float]:
        """Every rate, by name with its unit. The totals must hold some time.

        Args:
            recompute: what is computed again; the hardware's rate is given where it is not None.
            counted: whether `hardware_flops` was counted; else a forward pass is a third of a step.
        """
        found: dict[str, float] = {
            "model_flops": self.flops,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "tflops_per_device": self.flops / self.device_seconds / _TERA,
            "tokens_per_second": self.tokens / self.seconds,
            "tokens_per_second_per_device": self.tokens / self.device_seconds,
            "wall_tflops_per_device": self.flops / self.wall_device_seconds / _TERA,
        }
        if self.positions > self.tokens:
            found["padding_fraction"] = 1 - self.tokens / self.positions
        if self.peak_flops is not None and self.wall_peak_flops is not None:
            found["mfu"] = self.flops / self.peak_flops
            found["wall_mfu"] = self.flops / self.wall_peak_flops
            if recompute is not None:
                if counted or isinstance(recompute, str):
                    found["hfu"] = self.hardware_flops / self.peak_flops
                else:
                    found["hfu"] = found["mfu"] * (3 + recompute) / 3
        return found
