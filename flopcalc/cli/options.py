"""Arguments and options that several commands take, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TextIO, get_args

import click

from flopcalc.conventions import CONVENTIONS, Convention, get_convention
from flopcalc.counting import Phase
from flopcalc.errors import InvalidBatch

__all__ = ["convention_option", "model_argument", "phase_option", "read_conventions", "read_documents", "read_lengths"]

model_argument = click.argument("model")
"""MODEL: a bundled name, a path to config.json or its folder, or a hub id."""

convention_option = click.option(
    "--convention",
    "conventions",
    multiple=True,
    default=("standard",),
    metavar="NAME",
    help="How to count (see `flopcalc compare --help`), or `all`; may be repeated. Default: standard.",
)

phase_option = click.option(
    "--phase",
    type=click.Choice(get_args(Phase)),
    default="train",
    show_default=True,
    help="Forward and backward, or forward alone.",
)


def read_conventions(names: Sequence[str]) -> list[Convention]:
    """The conventions of those names, `all` being every one. Raises InvalidOption."""
    return [get_convention(name) for name in (CONVENTIONS if "all" in names else dict.fromkeys(names))]


def read_lengths(text: str, name: str) -> list[int]:
    """Document lengths in tokens, separated by commas, spaces or lines; a JSON list is one too.

    Raises InvalidBatch.
    """
    words = re.findall(r"[^\s,]+", text.strip().removeprefix("[").removesuffix("]"))
    for word in words:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", word):
            raise InvalidBatch(f"{name}: found {word[:40]!r}, expected a whole number of tokens below 10**18")
    return list(map(int, words))


def read_documents(file: TextIO) -> list[int]:
    """Document lengths in tokens from a file in the forms of `read_lengths`. Raises InvalidBatch."""
    try:
        return read_lengths(file.read(), file.name)
    except UnicodeDecodeError:
        raise InvalidBatch(f"{file.name}: not a text file; expected one document length a line") from None
