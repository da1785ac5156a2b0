"""`flopcalc models`: what can be counted by name."""

from __future__ import annotations

import difflib

import click

from flopcalc import facts
from flopcalc.cli.output import json_option, print_json, print_table
from flopcalc.errors import InvalidOption
from flopcalc.estimators import supported_model_types


@click.command(name="models", short_help="Supported model types and bundled models.")
@click.argument("search", required=False, default="")
@click.option("--markdown", is_flag=True, help="Print the README's table of all types.")
@json_option
def command(search: str, markdown: bool, as_json: bool) -> None:
    """Supported model types and the models whose config is bundled, those that contain SEARCH.

    A type is checked against the real transformers model, or follows what is published about it where
    transformers has no such model.
    """
    if markdown:
        click.echo("\n".join(markdown_table()))
        return
    follows = facts.real_models()["no_real_model"]
    models: dict[str, list[str]] = {model_type: [] for model_type in supported_model_types()}
    for name, file in facts.bundled_configs().items():
        models.setdefault(file.parent.name, []).append(name)
    word = search.lower()
    found = {
        model_type: names if word in model_type else matching
        for model_type, names in models.items()
        if (matching := [name for name in names if word in name.lower()]) or word in model_type
    }
    if not found:
        nearest = difflib.get_close_matches(search, [*models, *facts.bundled_configs()], cutoff=0.4)
        raise InvalidOption(
            f"models: found no model type and no bundled model with {search!r} in its name; "
            f"nearest: {', '.join(nearest) or 'none'}"
        )
    if as_json:
        print_json(
            [
                {"model_type": model_type, "real_model": model_type not in follows, "models": names}
                for model_type, names in found.items()
            ]
        )
    else:
        rows = [
            (model_type, name, follows.get(model_type, "checked against the real model"))
            for model_type, names in found.items()
            for name in names or ["-"]
        ]
        print_table(["model type", "bundled model", "structure"], rows)


def markdown_table() -> list[str]:
    """The lines of the README's table of supported types."""
    follows = facts.real_models()["no_real_model"]
    types = supported_model_types()
    rows = {
        "equal to the transformers model": [name for name in types if name not in follows],
        "as published, without a transformers model": [name for name in types if name in follows],
    }
    lines = ["| structure | number | types |", "|---|---|---|"]
    return lines + [f"| {grade} | {len(names)} | {', '.join(names)} |" for grade, names in rows.items()]
