"""Peak FLOP/s of a device: dense matrix work, per device as its runtime counts devices (a die, a core).

The facts are the files of `hardware/`: `peaks.csv` (one row per device and precision, with its source
and the pattern of the names that runtimes report), `aliases.csv` (what people type) and
`precisions.csv` (how a precision is spelt). A name fits as a whole or not at all: no part of a name,
no prefix and no nearest neighbour ever stands for a device.
"""

from __future__ import annotations

import csv
import difflib
import math
import os
import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from flopcalc import facts
from flopcalc.detection import device_names
from flopcalc.errors import InvalidOption, UnknownDevice

__all__ = [
    "PEAK_VARIABLE",
    "Device",
    "Figure",
    "Peak",
    "devices",
    "find_devices",
    "names_of",
    "nearest_names",
    "peak_flops",
    "read_precision",
    "register_device",
    "resolve_peak",
]

PEAK_VARIABLE = "FLOPCALC_PEAK_FLOPS"
"""The environment variable that holds a peak in FLOP/s, as `989.5e12`."""

_WHAT_TO_DO = (
    f"Set {PEAK_VARIABLE} to its dense FLOP/s, or call flopcalc.register_device(); `flopcalc devices` lists all."
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One published peak: dense FLOP/s, who says so and how sure that is (`datasheet`, `derived`,
    `peer-table`, or `ambiguous` where parts with other peaks report the same name)."""

    flops_per_second: float
    reference: str
    confidence: str
    note: str


@dataclass(frozen=True, slots=True)
class Device:
    """A device: its name in the table, the pattern of the names that runtimes report, and its peaks
    by precision."""

    name: str
    vendor: str
    pattern: re.Pattern[str]
    peaks: Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Peak:
    """A peak and where it came from: enough to say in a log which figure an MFU was divided by.

    `device` is the name in the table ("A or B" where the parts that fit share one peak), or what the
    caller gave where the figure was given too.
    """

    flops_per_second: float
    device: str | None
    dtype: str
    source: Literal["argument", "environment", "registered", "table"]
    reference: str


# --- the facts -----------------------------------------------------------------------------------


def _rows(file_name: str) -> Iterable[dict[str, str]]:
    with (facts.folder("hardware") / file_name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


@cache
def devices() -> Mapping[str, Device]:
    """The table: name -> device, in the order of the file. Read at the first call."""
    rows: dict[tuple[str, str, str], dict[str, Figure]] = {}
    for row in _rows("peaks.csv"):
        # Written as a decimal and read once, so that 989.5 TFLOP/s is 989500000000000.0 exactly.
        figure = Figure(float(f"{row['peak_tflops']}e12"), row["source"], row["confidence"], row["note"])
        rows.setdefault((row["device"], row["vendor"], row["match"]), {})[row["precision"]] = figure
    return MappingProxyType(
        {name: Device(name, vendor, _compile(match), peaks) for (name, vendor, match), peaks in rows.items()}
    )


@cache
def _typed() -> Mapping[str, tuple[str, ...]]:
    """What a person types -> the devices it fits: the names of the table and the aliases."""
    typed = {_key(name): (name,) for name in devices()}
    for row in _rows("aliases.csv"):
        typed[row["alias"]] = (*typed.get(row["alias"], ()), row["device"])
    return typed


@cache
def _precisions() -> Mapping[str, str]:
    return {row["spelling"]: row["precision"] for row in _rows("precisions.csv")}


@cache
def _reported() -> Mapping[str, tuple[str, ...]]:
    """Device -> names that runtimes were seen to report."""
    reported: dict[str, tuple[str, ...]] = {}
    for line in (facts.folder("hardware") / "device_names.txt").read_text(encoding="utf-8").splitlines():
        name, device, _ = line.split("\t")
        reported[device] = (*reported.get(device, ()), name)
    return reported


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.ASCII)


def _key(name: str) -> str:
    """Names differ neither by case nor by what separates their words."""
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


def names_of(device: Device) -> tuple[str, ...]:
    """The aliases of a device and the names that runtimes were seen to report for it."""
    aliases = [key for key, names in _typed().items() if device.name in names and key != _key(device.name)]
    return (*aliases, *_reported().get(device.name, ()))


def read_precision(dtype: Any) -> str:
    """The precision meant by a torch, numpy or JAX dtype or by a word such as "bfloat16".

    Raises InvalidOption, listing the precisions, for any other word.

    >>> read_precision("torch.bfloat16"), read_precision("FP8")
    ('bf16', 'fp8')
    """
    word = str(getattr(dtype, "__name__", dtype)).lower().removeprefix("torch.").replace("-", "_")
    precision = _precisions().get(word)
    if precision is None:
        known = ", ".join(dict.fromkeys(_precisions().values()))
        raise InvalidOption(f"dtype: found {dtype!r}, expected one of {known}, or a torch dtype of one of them")
    return precision


# --- looking up ----------------------------------------------------------------------------------

_registered: dict[str, Device] = {}


def register_device(
    name: str, peaks: Mapping[Any, float], *, pattern: str | None = None, replace: bool = False
) -> None:
    """Add a device of one's own to this process; it comes before the table.

    Args:
        name: the name that the runtime reports ("cpu" serves a run without an accelerator).
        peaks: precision -> dense FLOP/s of one device, as {"bf16": 989.5e12}.
        pattern: a regular expression of further names; it must fit a whole name, in any case.
        replace: take the place of a device that the name already stands for.

    Raises InvalidOption.
    """
    if not name.strip():
        raise InvalidOption(f"register_device: name: found {name!r}, expected what the runtime reports")
    if not peaks:
        raise InvalidOption(f"register_device({name!r}): peaks: found none, expected as {{'bf16': 989.5e12}}")
    if not replace and (known := find_devices(name)):
        raise InvalidOption(
            f"register_device: {name!r} already stands for {_either(known)}; pass replace=True to change it"
        )
    try:
        compiled = _compile(re.escape(name) if pattern is None else pattern)
    except re.error as error:
        raise InvalidOption(f"register_device({name!r}): pattern {pattern!r}: {error}") from None
    figures = {
        read_precision(dtype): Figure(
            _positive(f"register_device({name!r})", value), "register_device", "registered", ""
        )
        for dtype, value in peaks.items()
    }
    _registered[_key(name)] = Device(name, "", compiled, figures)


def find_devices(name: str) -> tuple[Device, ...]:
    """The devices that a name fits: none, one, or several where a person typed a family's name.

    What is registered comes first, then the names of the table and the aliases, then the patterns of
    the names that runtimes report.
    """
    key, text = _key(name), " ".join(name.split())
    own = tuple(device for k, device in _registered.items() if k == key or device.pattern.fullmatch(text))
    if own:
        return own
    if key in _typed():
        return tuple(devices()[name] for name in _typed()[key])
    return tuple(device for device in devices().values() if device.pattern.fullmatch(text))


def peak_flops(device: Any = None, dtype: Any = "bf16") -> float | None:
    """Peak dense FLOP/s of one device, or None with one warning where it is not known.

    Args:
        device: what a runtime reports ("NVIDIA H100 80GB HBM3"), what a person types ("a100-80gb"), a
            torch.device or its string ("cuda:0"), or None for the device of this process.
        dtype: the precision of the matrix products, as "bf16", "fp8" or a torch dtype. A torch.float32
            product that runs as TF32 is "tf32".

    The environment variable FLOPCALC_PEAK_FLOPS comes before the table; `resolve_peak` says which was
    used. Raises UnknownDevice where a name fits several parts with different peaks, InvalidOption for
    a word that is no precision or an environment variable that is no number.

    >>> peak_flops("NVIDIA H100 80GB HBM3"), peak_flops("a100", "int8")
    (989500000000000.0, 624000000000000.0)
    """
    peak = resolve_peak(device, dtype)
    return None if peak is None else peak.flops_per_second


def resolve_peak(device: Any = None, dtype: Any = "bf16", *, peak: float | None = None) -> Peak | None:
    """The peak of one device together with where it came from: the argument `peak` (FLOP/s) comes
    before the environment variable, that before what is registered, that before the table.

    `device`, `dtype` and the errors are those of `peak_flops`.

    >>> resolve_peak("l40s", "fp8").source
    'table'
    """
    precision = read_precision(dtype)
    given = None if device is None else str(device)
    if peak is not None:
        return Peak(_positive("peak", peak), given, precision, "argument", "given by the caller")
    if text := os.environ.get(PEAK_VARIABLE):
        value = _positive(f"environment variable {PEAK_VARIABLE}", text)
        return Peak(value, given, precision, "environment", f"environment variable {PEAK_VARIABLE}")
    names = device_names(device)
    found: dict[str, Device] = {}
    for name in names:
        matches = find_devices(name)
        if not matches:
            _warn_once(_unknown(name))
            return None
        found.update((match.name, match) for match in matches)
    return _shared_peak(" and ".join(map(repr, names)), tuple(found.values()), precision)


def _shared_peak(asked: str, found: tuple[Device, ...], precision: str) -> Peak | None:
    """The one peak of all the devices found. Raises UnknownDevice where they differ."""
    figures = [device.peaks.get(precision) for device in found]
    if len({figure and figure.flops_per_second for figure in figures}) > 1:
        parts = ", ".join(f"{device.name} ({_tflops(device, precision)})" for device in found)
        raise UnknownDevice(
            f"device {asked} fits several parts with different {precision} peaks: {parts}; pass the name of one"
        )
    figure = figures[0]
    if figure is None:
        others = "; ".join(f"{device.name} has {', '.join(device.peaks)}" for device in found)
        _warn_once(f"Device {asked}: no peak for {precision} is known, so no MFU: {others}. {_WHAT_TO_DO}")
        return None
    if figure.confidence == "ambiguous":
        _warn_once(
            f"Device {asked}: parts with other peaks report this name; taken as {_either(found)} with "
            f"{_tflops(found[0], precision)} of {precision} ({figure.note}). {_WHAT_TO_DO}"
        )
    source: Literal["registered", "table"] = "registered" if found[0] in _registered.values() else "table"
    return Peak(figure.flops_per_second, _either(found), precision, source, figure.reference)


def nearest_names(name: str) -> list[str]:
    """Up to three known names that look like this one: a hint for a message, never an answer."""
    shown = {key: names[0] if len(names) == 1 else key for key, names in _typed().items()}
    shown |= {_key(reported): device for device, names in _reported().items() for reported in names}
    close = difflib.get_close_matches(_key(name)[:80], shown, n=9, cutoff=0.6)
    return list(dict.fromkeys(shown[key] for key in close))[:3]


def _unknown(name: str) -> str:
    if name == "cpu":
        return f"Device 'cpu': there is no accelerator here that a peak is known for, so no MFU. {_WHAT_TO_DO}"
    nearest = ", ".join(nearest_names(name))
    hint = f" Names nearest to it: {nearest}." if nearest else ""
    return f"Device {name!r} is not in the peak table, so neither its peak nor an MFU is known.{hint} {_WHAT_TO_DO}"


def _tflops(device: Device, precision: str) -> str:
    figure = device.peaks.get(precision)
    return f"{figure.flops_per_second / 1e12:g} TFLOP/s" if figure else f"no {precision}"


def _either(found: Iterable[Device]) -> str:
    return " or ".join(device.name for device in found)


def _positive(what: str, value: Any) -> float:
    """A finite number above zero. Raises InvalidOption."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        raise InvalidOption(f"{what}: found {value!r}, expected FLOP/s as a finite number above 0, such as 989.5e12")
    return number


_warned: set[str] = set()


def _warn_once(message: str) -> None:
    """Warn once per process, at the caller's own line: Python's once-only filter is reset by every
    catch_warnings()."""
    if message in _warned:
        return
    _warned.add(message)
    depth, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals["__name__"].startswith("flopcalc."):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=depth)
