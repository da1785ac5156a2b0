"""`flopcalc verify`: a model's tree against the real model that transformers builds."""

from __future__ import annotations

from typing import Any

import click

from flopcalc.cli.options import read_lengths
from flopcalc.cli.output import json_option, print_json, print_table
from flopcalc.estimators import ESTIMATORS
from flopcalc.survey import causal_types, survey
from flopcalc.verify import Verification, verify


@click.command(name="verify", short_help="Compare a model's tree with the real model.")
@click.argument("models", nargs=-1, metavar="[MODEL...]")
@click.option("--all", "everything", is_flag=True, help="Every causal LM type of the installed transformers.")
@click.option("--lengths", metavar="N,N,...", help="Documents to run, in tokens; two of some length by default.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes that share --all.")
@json_option
def command(models: tuple[str, ...], everything: bool, lengths: str | None, jobs: int, as_json: bool) -> int:
    """Build each MODEL with transformers on the meta device (no weights, no memory) and compare its
    parameter table and the forward matmul FLOPs that torch's operator counter sees.

    MODEL is a bundled name, a path, a hub id, or a model_type, whose default config is then built.
    With --all, a line for every model_type: supported, parameter table equal, FLOPs equal, and why
    not; default configs are cut to a few layers that show each kind.

    The exit code is 1 where anything differs. Needs torch and transformers: flopcalc[verify].
    """
    if everything and models:
        raise click.UsageError("name a MODEL or pass --all, not both")
    if everything:
        return _survey(jobs, as_json)
    if not models:
        raise click.UsageError("name a MODEL, or pass --all")
    documents = None if lengths is None else read_lengths(lengths, "--lengths")
    results = {model: verify({"model_type": model} if model in ESTIMATORS else model, documents) for model in models}
    if as_json:
        print_json({model: _as_dict(result) for model, result in results.items()})
    else:
        for model, result in results.items():
            _print(model, result)
    return int(not all(result.equal for result in results.values()))


def _as_dict(result: Verification) -> dict[str, Any]:
    return {
        "model_type": result.model_type,
        "equal": result.equal,
        "params": result.num_params,
        "missing": result.missing,
        "surplus": result.surplus,
        "flops": [comparison._asdict() | {"equal": comparison.equal} for comparison in result.flops],
        "unjudged": result.unjudged,
        "not_run": result.not_run,
    }


def _print(model: str, result: Verification) -> None:
    verdict = "equal" if result.parameters_equal else "DIFFERENT"
    click.echo(f"{model} ({result.model_type}): parameter table {verdict}, {result.num_params:,} params")
    for what, entries in (("the tree lacks", result.missing), ("only the tree has", result.surplus)):
        for name, shape in entries[:20]:
            click.echo(f"  {what} {name} {list(shape)}")
        if len(entries) > 20:
            click.echo(f"  ... and {len(entries) - 20} more")
    if result.not_run is not None:
        click.echo(f"  the forward pass does not run on meta: {result.not_run}")
    if result.unjudged:
        click.echo(
            f"  {len(result.unjudged)} recurrent modules are beyond an operator counter: {result.unjudged[0]}, ..."
        )
    if result.flops:
        print_table(
            ["document (tokens)", "weights (FLOPs)", "seen (FLOPs)", "mixers (FLOPs)", "seen (FLOPs)", "equal"],
            [(*comparison, "yes" if comparison.equal else "NO") for comparison in result.flops],
            "forward matmul FLOPs, ours and those that the operator counter sees",
        )


def _survey(jobs: int, as_json: bool) -> int:
    findings = list(survey(sorted({*causal_types(), *ESTIMATORS}), jobs=jobs))
    if as_json:
        print_json([finding._asdict() | {"fine": finding.fine} for finding in findings])
    else:
        words = {True: "yes", False: "NO", None: "-"}
        print_table(
            ["model_type", "supported", "parameters equal", "FLOPs equal", "reason"],
            [
                (f.model_type, words[f.supported], words[f.parameters_equal], words[f.flops_equal], f.reason)
                for f in findings
            ],
        )
        click.echo(f"{sum(finding.fine for finding in findings)} of {len(findings)} types hold")
    return int(not all(finding.fine for finding in findings))
