"""`flopcalc compare`: one model under several conventions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import click

from flopcalc.cli.options import model_argument, phase_option, read_conventions, read_documents, read_lengths
from flopcalc.cli.output import json_option, print_json, print_table, scaled
from flopcalc.comparison import Comparison, Row, compare, percent
from flopcalc.counting import Phase
from flopcalc.estimators import describe


@click.command(name="compare", short_help="One model under several conventions, and why they differ.")
@model_argument
@click.option(
    "--seq-len",
    "seq_lens",
    multiple=True,
    type=click.IntRange(1, 10**18 - 1),
    metavar="TOKENS",
    help="A document of this length; may be repeated, together they are the batch.",
)
@click.option("--batch", metavar="N,N,...", help="More documents of the batch.")
@click.option("--docs", "files", multiple=True, type=click.File(), help="More documents, one length a line.")
@click.option(
    "--convention",
    "conventions",
    multiple=True,
    default=("all",),
    metavar="NAME",
    help="A convention; may be repeated. Default: all.",
)
@phase_option
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw FLOPs per token against length, a panel a convention (png, svg, pdf).",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    seq_lens: Sequence[int],
    batch: str | None,
    files: Sequence[TextIO],
    conventions: Sequence[str],
    phase: Phase,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Count a batch of MODEL as every framework's own counter would, and say what each does otherwise
    than `standard`.

    The differences of a row sum to its distance from standard. A row is the framework's rule: where
    its counter reads a config wrongly, or does not know the model, a note says so.
    """
    documents = [*seq_lens, *(read_lengths(batch, "--batch") if batch else [])]
    for file in files:
        documents += read_documents(file)
    if not documents:
        raise click.UsageError("Say what to count: --seq-len, --batch or --docs.", ctx)
    chosen, tree = read_conventions(conventions), describe(model)
    comparison = compare(tree, documents, chosen, phase=phase)
    if plot is not None:
        from flopcalc.plots import plot_flops_per_token

        plot_flops_per_token(tree, chosen, plot, title=model, seq_len=max(documents), phase=phase)
    if as_json:
        print_json(_as_dict(model, comparison))
    else:
        _print(model, comparison)


def _as_dict(model: str, comparison: Comparison) -> dict[str, Any]:
    about = {"model": model, "model_type": comparison.model_type, "phase": comparison.phase}
    sizes = {"documents": comparison.documents, "tokens": comparison.tokens}
    return {**about, **sizes, "rows": [_row(row, comparison.tokens) for row in comparison]}


def _row(row: Row, tokens: int) -> dict[str, Any]:
    return {
        "convention": row.convention,
        "flops": row.flops,
        "flops_per_token": row.flops / tokens,
        "ratio_to_standard": row.ratio,
        "parts": dict(row.parts),
        "differences": [{"words": difference.words, "flops": difference.flops} for difference in row.differences],
        "sentences": list(row.sentences),
        "printed_otherwise": row.printed_otherwise,
    }


def _print(model: str, comparison: Comparison) -> None:
    tokens, documents = comparison.tokens, comparison.documents
    per_token, rates = scaled("per token", "FLOPs", [row.flops / tokens for row in comparison])
    print_table(
        ["convention", "FLOPs", per_token, "ratio to standard", "parts that differ"],
        [
            [row.convention, row.flops, rate, f"{row.ratio:.4f}", _parts(row)]
            for row, rate in zip(comparison, rates, strict=True)
        ],
        f"{model} ({comparison.model_type}), {comparison.phase}, {tokens:,} tokens in {documents:,} "
        f"{'document' if documents == 1 else 'documents'}",
    )
    for row in comparison:
        lines = [*_sentences(row)]
        if row.printed_otherwise:
            lines.append(f"  but {row.convention}'s own counter {row.printed_otherwise}")
        if lines:
            click.echo("\n" + "\n".join(lines))


def _parts(row: Row) -> str:
    """Kinds of work that differ by a thousandth of standard's total or more."""
    seen = {kind: flops for kind, flops in row.parts.items() if abs(flops) >= row.standard_flops / 1000}
    largest = sorted(seen.items(), key=lambda part: -abs(part[1]))
    return ", ".join(f"{kind} {percent(flops, row.standard_flops)}" for kind, flops in largest) or "-"


def _sentences(row: Row) -> Iterator[str]:
    """A sentence for each difference; those below a ten-thousandth share one where they are several."""
    small = [i for i, difference in enumerate(row.differences) if abs(difference.flops) < row.standard_flops / 10_000]
    if len(small) < 2:
        yield from row.sentences
        return
    yield from row.sentences[: small[0]]
    together = sum(row.differences[i].flops for i in small)
    yield f"{row.convention} differs in {len(small)} smaller ways: {percent(together, row.standard_flops)} together"
