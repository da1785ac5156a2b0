"""`flopcalc mfu`: the MFU of a measured run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TextIO, cast

import click

from flopcalc.cli.options import (
    convention_option,
    model_argument,
    read_conventions,
    read_documents,
    read_lengths,
    training_options,
)
from flopcalc.cli.output import json_option, print_json, print_table
from flopcalc.cli.peak import about_peak, peak_options, read_peak
from flopcalc.counting import FlopCounter
from flopcalc.errors import InvalidBatch
from flopcalc.estimators import describe
from flopcalc.hardware import Peak
from flopcalc.training import Recompute, Training


@click.command(name="mfu", short_help="MFU of a measured run.")
@model_argument
@peak_options
@click.option("--seq-len", type=click.IntRange(1, 10**18 - 1), metavar="TOKENS", help="All documents have this length.")
@click.option("--batch", metavar="N,N,...", help="The documents of one step, over all devices.")
@click.option("--docs", type=click.File(), help="The documents of one step from a file, one length a line.")
@click.option("--tokens-per-second", type=float, metavar="RATE", help="Measured over all devices.")
@click.option("--step-seconds", type=float, metavar="SECONDS", help="Measured time of a step with these documents.")
@click.option(
    "--recompute", metavar="FRACTION", help="Recomputed part of the forward pass, `full` or `selective`: shows HFU too."
)
@convention_option
@training_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    device: str | None,
    devices: int,
    dtype: str,
    peak_flops: float | None,
    seq_len: int | None,
    batch: str | None,
    docs: TextIO | None,
    tokens_per_second: float | None,
    step_seconds: float | None,
    recompute: str | None,
    conventions: Sequence[str],
    training: Training,
    as_json: bool,
) -> None:
    """MFU of a run that trains MODEL, from its measured tokens per second or seconds per step.

    Every document counts on its own length: --seq-len says that of all, --batch or --docs list those
    of a step. A device whose name fits several parts (H100) is an error that lists them.
    """
    if sum(given is not None for given in (seq_len, batch, docs)) != 1:
        raise click.UsageError("Say the documents by one of --seq-len, --batch and --docs.", ctx)
    if (tokens_per_second is None) == (step_seconds is None):
        raise click.UsageError("Say the speed by one of --tokens-per-second and --step-seconds.", ctx)
    if seq_len is not None and step_seconds is not None:
        raise click.UsageError("--step-seconds is the time of a step's documents: list them by --batch or --docs.", ctx)
    lengths = (
        [seq_len] if seq_len is not None else read_documents(docs) if docs else read_lengths(batch or "", "--batch")
    )
    if not sum(lengths):
        raise InvalidBatch("documents: found no tokens, expected the lengths of a step's documents")
    speed = step_seconds if step_seconds is not None else cast(float, tokens_per_second)
    if not 0 < speed < float("inf"):
        raise click.UsageError(f"Found a speed of {speed}, expected a finite number above 0.", ctx)
    seconds = speed if step_seconds is not None else sum(lengths) / speed
    peak = read_peak(device, dtype, peak_flops)
    tree = describe(model, mtp=training.mtp)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        counters = [FlopCounter(tree, convention, training=training) for convention in read_conventions(conventions)]
        rows = [_measured(counter, lengths, seconds, peak, devices, _recompute(ctx, recompute)) for counter in counters]
    for warning in caught[:1]:  # the other conventions doubt the same
        click.echo(f"flopcalc: {warning.message}", err=True)
    about = about_peak(peak, devices)
    if as_json:
        print_json({"model": model, **about, "rows": rows})
        return
    hfu = ["HFU (%)"] if recompute is not None else []
    print_table(
        ["convention", "MFU (%)", *hfu, "per device (TFLOP/s)", "peak (TFLOP/s)", "tokens/s", "tokens/s per device"],
        [
            [
                row["convention"],
                100 * row["mfu"],
                *([100 * row["hfu"]] if hfu else []),
                row["tflops_per_device"],
                peak.flops_per_second / 1e12,
                row["tokens_per_second"],
                row["tokens_per_second_per_device"],
            ]
            for row in rows
        ],
        f"{model} on {devices} x {peak.device or 'device'} ({peak.dtype}, peak from {peak.source})",
    )


def _measured(
    counter: FlopCounter,
    lengths: list[int],
    seconds: float,
    peak: Peak,
    devices: int,
    recompute: Recompute | None,
) -> dict[str, Any]:
    """The figures of one interval."""
    from flopcalc.mfu import MfuMeter

    meter = MfuMeter(counter, peak_flops=peak, dtype=peak.dtype, devices=devices, recompute=recompute)
    meter.add(lengths)
    logs = meter.step(elapsed_seconds=seconds)
    names = ("mfu", "hfu", "tflops_per_device", "tokens_per_second", "tokens_per_second_per_device", "model_flops")
    return {
        "convention": counter.convention.name,
        **{name: logs[f"perf/{name}"] for name in names if f"perf/{name}" in logs},
        "seconds": seconds,
        "tokens": sum(lengths),
        "implausible": meter.implausible,
    }


def _recompute(ctx: click.Context, text: str | None) -> Recompute | None:
    if text is None or text in ("full", "selective"):
        return cast("Recompute | None", text)
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(
            f"--recompute: found {text!r}, expected a fraction from 0 to 1, `full` or `selective`.", ctx
        ) from None
