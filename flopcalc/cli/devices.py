"""`flopcalc devices`: the peak table."""

from __future__ import annotations

from dataclasses import asdict

import click

from flopcalc.cli.output import json_option, print_json, print_table
from flopcalc.errors import UnknownDevice
from flopcalc.hardware import Device, devices, find_devices, names_of, nearest_names, read_precision

_USUAL = ("bf16", "fp16", "fp8")


@click.command(name="devices", short_help="Known devices and their peaks; searches by any of their names.")
@click.argument("search", nargs=-1)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="NAME",
    help=f"A precision, as bf16 or torch.float16; may be repeated. Default: {', '.join(_USUAL)}.",
)
@json_option
def command(search: tuple[str, ...], dtypes: tuple[str, ...], as_json: bool) -> None:
    """Known devices with their dense peaks, those whose names hold every word of SEARCH.

    A device is found by its name here, by what its runtime reports ("NVIDIA H100 80GB HBM3") and by
    what people type (a100-80gb, mi300x). With --dtype, those alone that have a peak for it.
    """
    precisions = tuple(dict.fromkeys(map(read_precision, dtypes)))
    found = [device for device in _search(" ".join(search)) if not precisions or {*precisions} & {*device.peaks}]
    if not found:
        wanted = f" with a peak for {' or '.join(precisions)}" if precisions else ""
        nearest = ", ".join(nearest_names(" ".join(search)))
        raise UnknownDevice(f"devices: found none named {' '.join(search)!r}{wanted}; nearest: {nearest or 'none'}")
    if as_json:
        print_json([_record(device, precisions) for device in found])
        return
    columns = precisions or _USUAL
    figures = [[device.peaks.get(precision) for precision in columns] for device in found]
    print_table(
        ["device", *(f"{precision} (TFLOP/s)" for precision in columns)],
        [
            (device.name, *(figure and figure.flops_per_second / 1e12 for figure in row))
            for device, row in zip(found, figures, strict=True)
        ],
    )


def _search(text: str) -> list[Device]:
    """Devices that the whole text names, or one of whose names holds each of its words."""
    named = {device.name for device in find_devices(text)}
    words = text.lower().split()
    return [
        device
        for device in devices().values()
        if device.name in named
        or any(all(word in name.lower() for word in words) for name in (device.name, *names_of(device)))
    ]


def _record(device: Device, precisions: tuple[str, ...]) -> dict[str, object]:
    peaks = {name: asdict(figure) for name, figure in device.peaks.items() if not precisions or name in precisions}
    return {"device": device.name, "vendor": device.vendor, "names": names_of(device), "peaks": peaks}
