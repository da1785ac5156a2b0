"""`flopcalc registry`: the bundled configs and the regression table over them.

The table pins the numbers of every bundled model under every convention, so that no change of a
number goes unseen: `check` recomputes it, `update` writes it anew.
"""

from __future__ import annotations

import csv
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import click

from flopcalc import facts
from flopcalc.cli.output import json_option, print_json, print_table
from flopcalc.config import read_config
from flopcalc.conventions import CONVENTIONS
from flopcalc.counting import FlopCounter
from flopcalc.errors import InvalidOption
from flopcalc.estimators import describe

BATCHES = ([1024], [8192], [65536], [4096, 1024, 300, 17])
"""Document lengths in tokens of each batch of the regression table."""

KEY = ("model", "convention", "seq_lens")
NUMBERS = ("flops", "params", "active_params")
SOURCE_COLUMNS = ("file", "model_type", "hf_id", "source", "completeness", "note")

Table = dict[tuple[str, ...], tuple[int, ...]]
"""(model, convention, seq_lens) -> (flops, params, active_params)."""


@click.group(name="registry", no_args_is_help=False, short_help="Bundled configs and the regression table over them.")
def command() -> None:
    """The bundled configs and the regression table of their numbers."""


@command.command()
@json_option
def check(as_json: bool) -> int:
    """Recompute the regression table; print every number that differs and exit with 1."""
    pinned, computed = read_table(), compute_table()
    differences = [
        {**dict(zip(KEY, key, strict=True)), "number": number, "table": was, "computed": now}
        for key in sorted(pinned.keys() | computed.keys())
        for number, was, now in _changes(pinned.get(key), computed.get(key))
    ]
    if as_json:
        print_json({"rows": len(computed), "differences": differences})
    elif differences:
        print_table([*KEY, "number", "table", "computed"], [list(row.values()) for row in differences])
    else:
        click.echo(f"{len(computed):,} rows, as the table has them")
    return 1 if differences else 0


@command.command()
@json_option
def update(as_json: bool) -> None:
    """Write the regression table anew, in a checkout."""
    path, table = _writable() / "regression.csv", compute_table()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*KEY, *NUMBERS])
        writer.writerows([*key, *numbers] for key, numbers in table.items())
    if as_json:
        print_json({"file": str(path), "rows": len(table)})
    else:
        click.echo(f"{path}: {len(table):,} rows")


@command.command()
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--model", required=True, metavar="ORG/NAME", help="The model's hub id.")
@click.option("--source", required=True, help="Where the file was read.")
@click.option(
    "--completeness",
    type=click.Choice(("verbatim", "assembled", "default")),
    default="verbatim",
    show_default=True,
    help="As published; put together from several sources; or a class's defaults.",
)
@click.option("--note", default="", help="What a reader should know of it.")
def add(config: Path, model: str, source: str, completeness: str, note: str) -> None:
    """File a model's config.json, byte for byte, with its source; in a checkout."""
    click.echo(add_config(config, model, source, completeness, note))


def add_config(config: Path, model: str, source: str, completeness: str, note: str = "") -> Path:
    """File a config under registry/<model_type>/ and its source in registry/SOURCES.csv.

    Raises InvalidConfig or UnsupportedModel for a config that cannot be counted, InvalidOption for a
    name that is no hub id, and outside a checkout.
    """
    registry = _writable()
    if not re.fullmatch(r"[A-Za-z0-9][\w-]*/[A-Za-z0-9][\w.-]*", model):
        raise InvalidOption(f"--model: found {model!r}, expected a hub id such as Qwen/Qwen3-8B")
    describe(config)
    model_type = read_config(config)[0]
    target = registry / model_type / f"{model.replace('/', '__')}.json"
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(config, target)
    sources = {row["file"]: row for row in _read_csv(registry / "SOURCES.csv")}
    file = target.relative_to(registry).as_posix()
    row = (file, model_type, model, source, completeness, note)
    sources[file] = dict(zip(SOURCE_COLUMNS, row, strict=True))
    with (registry / "SOURCES.csv").open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, SOURCE_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sources[file] for file in sorted(sources))
    facts.bundled_configs.cache_clear()
    return target


def compute_table() -> Table:
    """The regression table of the code as it stands."""
    table: Table = {}
    for model, file in facts.bundled_configs().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is counted of a model is the table's, not the reader's, matter
            tree = describe(file)
        params = tree.num_params(), tree.num_active_params()
        for convention in CONVENTIONS:
            counter = FlopCounter(tree, convention)
            for batch in BATCHES:
                table[model, convention, " ".join(map(str, batch))] = (counter(batch), *params)
    return table


def read_table() -> Table:
    """The regression table as it is stored."""
    return {
        tuple(row[column] for column in KEY): tuple(int(row[column]) for column in NUMBERS)
        for row in _read_csv(facts.folder("registry") / "regression.csv")
    }


def _changes(
    pinned: tuple[int, ...] | None, computed: tuple[int, ...] | None
) -> Iterator[tuple[str, int | None, int | None]]:
    """(number, as stored, as computed) where they differ; None for a row that one side lacks."""
    absent = (None,) * len(NUMBERS)
    for number, was, now in zip(NUMBERS, pinned or absent, computed or absent, strict=True):
        if was != now:
            yield number, was, now


def _read_csv(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _writable() -> Path:
    if not facts.is_checkout():
        raise InvalidOption(
            f"registry: {facts.folder('registry')} belongs to an installed package, which is read-only; "
            f"change the registry in a checkout of flopcalc"
        )
    return facts.folder("registry")
