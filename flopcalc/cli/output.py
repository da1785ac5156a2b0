"""What the commands share: tables, JSON, number formats, and errors as one line."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, cast

import click

from flopcalc.errors import FlopcalcError

__all__ = ["format_number", "json_option", "print_json", "print_table", "run", "scaled"]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")

_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")


def run(command: click.Command, args: Sequence[str] | None = None) -> int:
    """Run a command; its exit code is what it returned (None is 0).

    Any error made on purpose, and whatever the user did to the pipe or the keyboard, ends in one
    line on stderr at most; a traceback is a fault of flopcalc itself.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = cast(Any, _show_warning)
            code = command.main(args, prog_name="flopcalc", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except FlopcalcError as error:
        return _fail(str(error), 2)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "flopcalc"
        return _fail(f"{error.format_message().rstrip('.')}; see `{path} --help`", 2)
    except click.ClickException as error:
        return _fail(error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", 130)
    except BrokenPipeError:  # the reader left, as `| head` does: nothing more to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(str(error), 2)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"flopcalc: {message}", err=True)


def _fail(message: str, code: int) -> int:
    line = " ".join(message.split())
    click.echo(f"flopcalc: {line if len(line) < 1000 else line[:1000] + '...'}", err=True)
    return code


def print_json(value: Any) -> None:
    """Print a value as indented JSON. Whole numbers are printed in full, whatever their size."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def format_number(value: Any) -> str:
    """A table's cell: whole numbers in full with separators, fractions to two decimals.

    >>> format_number(30949010000000), format_number(30.94901), format_number(0.00195), format_number(None)
    ('30,949,010,000,000', '30.95', '0.00195', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f}" if abs(value) >= 1 or value == 0 else f"{value:.4g}"


def scaled(name: str, unit: str, values: Sequence[float | None]) -> tuple[str, list[float | None]]:
    """(heading with the unit, values in that unit): the SI prefix fits the largest value; None stays.

    >>> scaled("rate", "FLOP/s", [3.094901e13, 2e12])
    ('rate (TFLOP/s)', [30.94901, 2.0])
    """
    largest, power = max((abs(value) for value in values if value is not None), default=0), 0
    while largest >= 1000 ** (power + 1) and power + 1 < len(_PREFIXES):
        power += 1
    return f"{name} ({_PREFIXES[power]}{unit})", [value if value is None else value / 1000**power for value in values]


def print_table(headings: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """Print a table; each heading says its unit. Columns of numbers are set to the right.

    A terminal gets borders and folds long cells; a file or a pipe gets plain lines, never wrapped.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    rows = [list(row) for row in rows]
    plain = not sys.stdout.isatty()
    console = Console(width=100_000 if plain else None, markup=False, emoji=False, highlight=False)
    table = Table(box=None if plain else box.ROUNDED, pad_edge=not plain)
    for column, heading in enumerate(headings):
        numeric = all(row[column] is None or isinstance(row[column], (int, float)) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(format_number, row))
    if title:
        console.print(title)
    console.print(table)
