"""`flopcalc estimate`: FLOPs of documents and batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import click

from flopcalc.cli.options import (
    convention_option,
    model_argument,
    phase_option,
    read_conventions,
    read_documents,
    read_lengths,
    training_options,
)
from flopcalc.cli.output import json_option, print_json, print_table, scaled
from flopcalc.config import read_config
from flopcalc.counting import Breakdown, FlopCounter, Phase
from flopcalc.estimators import describe
from flopcalc.training import Training


@click.command(name="estimate", short_help="FLOPs of documents and batches.")
@model_argument
@click.option(
    "--seq-len",
    "seq_lens",
    multiple=True,
    type=click.IntRange(0, 10**18 - 1),
    metavar="TOKENS",
    help="One document of this length; may be repeated, each is a row.",
)
@click.option("--batch", "batches", multiple=True, metavar="N,N,...", help="Documents of one batch, together a row.")
@click.option("--docs", "files", multiple=True, type=click.File(), help="A batch from a file, one length a line.")
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="F,H,W",
    help="An image of every row: its frames, height and width in patches, or its number of patches; may be repeated.",
)
@click.option(
    "--audio", "audios", multiple=True, type=click.IntRange(0), metavar="FRAMES", help="An audio of every row."
)
@convention_option
@phase_option
@training_options
@click.option("--by", type=click.Choice(("kind", "module")), help="Split each row by kind of work or by module.")
@click.option("--depth", default=3, show_default=True, type=click.IntRange(1), help="Levels of --by module.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw FLOPs per token against length, stacked by kind (png, svg, pdf).",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    seq_lens: Sequence[int],
    batches: Sequence[str],
    files: Sequence[TextIO],
    images: Sequence[str],
    audios: Sequence[int],
    conventions: Sequence[str],
    phase: Phase,
    training: Training,
    by: str | None,
    depth: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """FLOPs of training MODEL on documents, each counted on its own length.

    MODEL is a bundled name (see `flopcalc models`), a path to config.json or its folder, or a hub id.
    """
    batch_lengths = [
        *([seq_len] for seq_len in seq_lens),
        *(read_lengths(text, "--batch") for text in batches),
        *(read_documents(file) for file in files),
    ]
    if not batch_lengths:
        raise click.UsageError("Say what to count: --seq-len, --batch or --docs.", ctx)
    media = {"images": [_read_image(text) for text in images] or None, "audios": list(audios) or None}
    model_type, fields = read_config(model)
    tree = describe(fields, mtp=training.mtp)
    counters = [FlopCounter(tree, convention, phase, training) for convention in read_conventions(conventions)]
    params, active_params = tree.num_params(), tree.num_active_params()
    rows = [_row(counter, lengths, media, by, depth) for counter in counters for lengths in batch_lengths]
    if plot is not None:
        from flopcalc.plots import plot_flops_per_token

        plot_flops_per_token(tree, [counter.convention for counter in counters], plot, title=model, phase=phase)
    if as_json:
        about = {"model": model, "model_type": model_type, "phase": phase}
        print_json({**about, "params": params, "active_params": active_params, "rows": rows})
        return
    title = f"{model} ({model_type}), {phase}"
    if by:
        _print_parts(title, rows, by)
    else:
        _print_totals(title, rows, params, active_params)


def _read_image(text: str) -> int | list[int]:
    sides = read_lengths(text, "--image")
    return sides[0] if len(sides) == 1 else sides


def _row(counter: FlopCounter, lengths: list[int], media: dict[str, Any], by: str | None, depth: int) -> dict[str, Any]:
    flops, tokens = counter(lengths, **media), sum(lengths)
    row = {
        "convention": counter.convention.name,
        "documents": len(lengths),
        "tokens": tokens,
        "flops": flops,
        "flops_per_token": flops / tokens if tokens else None,
    }
    if by:
        row[f"flops_by_{by}"] = _parts(counter.breakdown(lengths, **media), by, depth)
    return row


def _parts(breakdown: Breakdown, by: str, depth: int) -> dict[str, int]:
    if by == "kind":
        return breakdown.by_kind()
    return {name: flops for name, flops in breakdown.by_module().items() if name and name.count(".") < depth}


def _print_totals(title: str, rows: list[dict[str, Any]], params: int, active_params: int) -> None:
    total, totals = scaled("total", "FLOPs", [row["flops"] for row in rows])
    per_token, rates = scaled("per token", "FLOPs", [row["flops_per_token"] for row in rows])
    print_table(
        ["convention", "documents", "tokens", "FLOPs", total, per_token, "params", "active params"],
        [
            [row["convention"], row["documents"], row["tokens"], row["flops"], whole, rate, params, active_params]
            for row, whole, rate in zip(rows, totals, rates, strict=True)
        ],
        title,
    )


def _print_parts(title: str, rows: list[dict[str, Any]], by: str) -> None:
    print_table(
        ["convention", "documents", "tokens", by, "FLOPs", "share (%)"],
        [
            [row["convention"], row["documents"], row["tokens"], part, flops, 100 * flops / max(row["flops"], 1)]
            for row in rows
            for part, flops in {"(all)": row["flops"], **row[f"flops_by_{by}"]}.items()
        ],
        title,
    )
