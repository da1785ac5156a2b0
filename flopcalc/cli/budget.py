"""`flopcalc budget`: what a training run will take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from flopcalc.cli.options import convention_option, model_argument, read_conventions, training_options
from flopcalc.cli.output import json_option, print_json, print_table, scaled
from flopcalc.cli.peak import about_peak, peak_options, read_peak
from flopcalc.counting import FlopCounter
from flopcalc.estimators import describe
from flopcalc.training import Training

_SUFFIXES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}


def _read_tokens(ctx: click.Context, param: click.Parameter, text: str) -> int:
    """A whole number of tokens, as 15T, 300B, 1.5e12 or 2_000_000; exact: 0.1T is 10**11."""
    match = re.fullmatch(r"([0-9_]*\.?[0-9_]+(?:e\+?[0-9]{1,2})?)([KMBGT]?)", text.strip(), re.IGNORECASE)
    digits = match[1].replace("_", "") if match else ""
    try:
        number = Decimal(digits) * _SUFFIXES[match[2].upper()] if match else Decimal(0)
    except InvalidOperation:
        number = Decimal(0)
    if not 0 < number < 10**30 or number != int(number):
        raise click.BadParameter(f"found {text!r}, expected a whole number of tokens, as 15T, 300B or 1.5e12.")
    return int(number)


@click.command(name="budget", short_help="FLOPs, device-hours and days of a training run.")
@model_argument
@click.option(
    "--tokens", callback=_read_tokens, required=True, metavar="TOKENS", help="Tokens of the run, as 15T or 300B."
)
@click.option(
    "--seq-len", type=click.IntRange(1, 10**12), required=True, metavar="TOKENS", help="Length of the documents."
)
@peak_options
@click.option(
    "--mfu",
    type=click.FloatRange(0, 1, min_open=True),
    required=True,
    metavar="FRACTION",
    help="The MFU that the run reaches, as 0.4.",
)
@convention_option
@training_options
@json_option
def command(
    model: str,
    tokens: int,
    seq_len: int,
    device: str | None,
    devices: int,
    dtype: str,
    peak_flops: float | None,
    mfu: float,
    conventions: Sequence[str],
    training: Training,
    as_json: bool,
) -> None:
    """Total training FLOPs of MODEL, and the device-hours and days that they take at an MFU.

    The MFU must be one that the convention was counted by: a half-causal 40 % is another time than a
    dense one.
    """
    if mfu != mfu:  # NaN passes every range
        raise click.UsageError("--mfu: found nan, expected a fraction above 0 and up to 1")
    peak = read_peak(device, dtype, peak_flops)
    tree = describe(model, mtp=training.mtp)
    rows: list[dict[str, Any]] = []
    for convention in read_conventions(conventions):
        flops = _total(FlopCounter(tree, convention, training=training), tokens, seq_len)
        device_seconds = flops / (peak.flops_per_second * mfu)
        rows.append(
            {
                "convention": convention.name,
                "flops": flops,
                "flops_per_token": flops / tokens,
                "device_hours": device_seconds / 3600,
                "days": device_seconds / devices / 86400,
                "tokens_per_second": tokens * devices / device_seconds,
            }
        )
    if as_json:
        about = {"model": model, "tokens": tokens, "seq_len": seq_len, "mfu": mfu}
        print_json({**about, **about_peak(peak, devices), "rows": rows})
        return
    total, totals = scaled("total", "FLOPs", [row["flops"] for row in rows])
    print_table(
        ["convention", "FLOPs", total, "device-hours (h)", "time (days)", "tokens/s"],
        [
            [row["convention"], row["flops"], whole, row["device_hours"], row["days"], row["tokens_per_second"]]
            for row, whole in zip(rows, totals, strict=True)
        ],
        f"{model}, {tokens:,} tokens in documents of {seq_len:,}, on {devices:,} x {peak.device or 'device'} at "
        f"{100 * mfu:g} % of {peak.flops_per_second / 1e12:g} TFLOP/s ({peak.dtype}, peak from {peak.source})",
    )


def _total(counter: FlopCounter, tokens: int, seq_len: int) -> int:
    """FLOPs of as many documents as there are, and of what is left."""
    documents, rest = divmod(tokens, seq_len)
    return documents * counter([seq_len]) + counter([rest])
