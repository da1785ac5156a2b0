"""`flopcalc pack`: documents into micro-batches, level in FLOPs on every rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

import click

from flopcalc.cli.options import phase_option, read_documents, training_options
from flopcalc.cli.output import json_option, print_json
from flopcalc.counting import FlopCounter, Phase
from flopcalc.training import Training


@click.command(name="pack", short_help="Pack documents into micro-batches, level in FLOPs on every rank.")
@click.argument("lengths", type=click.File())
@click.option("--model", required=True, metavar="MODEL", help="A bundled name, a path to a config, or a hub id.")
@click.option("--max-tokens", required=True, type=int, metavar="TOKENS", help="The cap of a micro-batch.")
@click.option("--ranks", required=True, type=int, metavar="N", help="Data-parallel ranks.")
@click.option(
    "--sync",
    type=click.Choice(("micro_batch", "step")),
    default="micro_batch",
    show_default=True,
    help="Where ranks wait for each other: at every micro-batch, or once a step.",
)
@click.option("--micro-batches", type=int, metavar="N", help="Micro-batches of a rank; chosen by default.")
@click.option("--multiple-of", type=int, default=1, metavar="TOKENS", help="Round each length up to a multiple.")
@click.option("--pad-to-longest", is_flag=True, help="Micro-batches are padded rows, as long as their longest.")
@click.option("--convention", default="standard", show_default=True, metavar="NAME", help="How to count.")
@phase_option
@training_options
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the ranks' work and idle time as bars (png, svg, pdf).",
)
@json_option
def command(
    lengths: TextIO,
    model: str,
    max_tokens: int,
    ranks: int,
    sync: Any,
    micro_batches: int | None,
    multiple_of: int,
    pad_to_longest: bool,
    convention: str,
    phase: Phase,
    training: Training,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Pack the documents of LENGTHS (a file, one length in tokens a line; - is stdin) into micro-batches
    of at most --max-tokens tokens, the same number on every rank, each rank as busy as the others.

    Places in --json count the documents of the file from 0.
    """
    from flopcalc.packing import pack

    plan = pack(
        read_documents(lengths),
        max_tokens=max_tokens,
        num_ranks=ranks,
        counter=FlopCounter(model, convention, phase, training),
        sync=sync,
        micro_batches=micro_batches,
        multiple_of=multiple_of,
        pad_to_longest=pad_to_longest,
    )
    if plot is not None:
        from flopcalc.packing.chart import draw

        draw(plan, plot, model)
    if as_json:
        print_json(
            {
                "model": model,
                "convention": convention,
                "phase": phase,
                "ranks": ranks,
                "sync": sync,
                "max_tokens": max_tokens,
                "micro_batches_per_rank": plan.num_micro_batches,
                "makespan_flops": plan.makespan,
                "total_flops": plan.total_flops,
                "imbalance": plan.imbalance,
                "idle_share": plan.idle_share,
                "lower_bound_flops": plan.lower_bounds,
                "rank_flops": plan.rank_flops,
                "rank_tokens": plan.rank_tokens,
                "flops": plan.flops.tolist(),
                "tokens": plan.tokens.tolist(),
                "micro_batches": plan.micro_batches,
            }
        )
    else:
        click.echo(plan.summary())
