"""Arguments and options that several commands take, and how they are read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TextIO, get_args

import click

from flopcalc.conventions import CONVENTIONS, Convention, get_convention
from flopcalc.counting import Phase
from flopcalc.errors import InvalidBatch, InvalidOption
from flopcalc.training import Training

__all__ = [
    "convention_option", "model_argument", "phase_option", "read_conventions", "read_documents", "read_lengths",
    "training_options",
]  # fmt: skip

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


def training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say what learns; the command takes them as one `training`."""

    @click.option(
        "--lora", type=click.Path(exists=True, path_type=Path), help="LoRA: peft's adapter_config.json, or its folder."
    )
    @click.option(
        "--trained",
        multiple=True,
        metavar="PATTERN",
        help="Modules or parameters that learn (`model.layers.[0-3]`); may be repeated. Default: all.",
    )
    @click.option("--frozen", multiple=True, metavar="PATTERN", help="Those that do not learn; may be repeated.")
    @click.option("--mtp", is_flag=True, help="Multi-token prediction runs beside the model.")
    @wraps(command)
    def with_training(
        *args: Any, lora: Path | None, trained: tuple[str, ...], frozen: tuple[str, ...], mtp: bool, **options: Any
    ) -> Any:
        adapters = None if lora is None else _read_adapters(lora)
        training = Training(lora=adapters, trained=trained or None, frozen=frozen, mtp=mtp)
        return command(*args, training=training, **options)

    return with_training


def _read_adapters(path: Path) -> Any:
    path = path / "adapter_config.json" if path.is_dir() else path
    try:
        adapters = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InvalidOption(f"--lora: {path}: found no readable adapter_config.json: {error}") from None
    if not isinstance(adapters, dict) or "peft_type" not in adapters:
        raise InvalidOption(f"--lora: {path}: found no peft_type, expected the adapter_config.json that peft writes")
    return adapters


def read_conventions(names: Sequence[str]) -> list[Convention]:
    """The conventions of those names, `all` being every one. Raises InvalidOption."""
    return [get_convention(name) for name in (CONVENTIONS if "all" in names else dict.fromkeys(names))]


def read_lengths(text: str, name: str) -> list[int]:
    """Document lengths in tokens, separated by commas, spaces or lines; a JSON list is one too.

    Raises InvalidBatch.
    """
    listed = text.strip().removeprefix("[").removesuffix("]").strip()
    words = re.split(r"\s*,\s*|\s+", listed) if listed else []
    for word in words:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", word):
            raise InvalidBatch(f"{name}: found {word[:40]!r}, expected a whole number of tokens below 10**18")
    return list(map(int, words))


def read_documents(file: TextIO) -> list[int]:
    """Document lengths in tokens from a file in the forms of `read_lengths`. Raises InvalidBatch."""
    try:
        return read_lengths(file.read().removeprefix("\ufeff"), file.name)
    except UnicodeDecodeError:
        raise InvalidBatch(f"{file.name}: not a text file; expected one document length a line") from None
