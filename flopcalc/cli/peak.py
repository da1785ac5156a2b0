"""What the commands that divide by a peak share: their options, and one line for a peak that is not known."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import click

from flopcalc.errors import UnknownDevice
from flopcalc.hardware import Peak, resolve_peak

__all__ = ["about_peak", "peak_options", "read_peak"]

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--device", metavar="NAME", help="The device (see `flopcalc devices`). Default: that of this machine."
    ),
    click.option("--devices", default=1, show_default=True, type=click.IntRange(1), help="How many of them."),
    click.option("--dtype", default="bf16", show_default=True, help="The precision of the matrix products."),
    click.option("--peak-flops", type=float, metavar="FLOP/S", help="Peak dense FLOP/s of one device, as 989.5e12."),
)


def peak_options(command: Command) -> Command:
    """The options --device, --devices, --dtype and --peak-flops."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_peak(device: str | None, dtype: str, peak_flops: float | None) -> Peak:
    """The peak of one device. Raises UnknownDevice where it is not known."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        peak = resolve_peak(device, dtype, peak=peak_flops)
    messages = [str(warning.message) for warning in caught]
    if peak is None:
        unknown = f"--device: the {dtype} peak of {device or 'the device of this machine'} is not known"
        raise UnknownDevice(f"{(messages or [unknown])[0]} Or pass --peak-flops.")
    for message in messages:
        click.echo(f"flopcalc: {message}", err=True)
    return peak


def about_peak(peak: Peak, devices: int) -> dict[str, Any]:
    """What was divided by, for a record."""
    return {
        "device": peak.device,
        "devices": devices,
        "dtype": peak.dtype,
        "peak_flops_per_second": peak.flops_per_second * devices,
        "device_peak_flops_per_second": peak.flops_per_second,
        "peak_source": peak.source,
        "peak_reference": peak.reference,
    }
