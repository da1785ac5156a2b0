"""`flopcalc params`: how many parameters a model has, and which."""

from __future__ import annotations

from math import prod

import click

from flopcalc.cli.options import model_argument
from flopcalc.cli.output import json_option, print_json, print_table
from flopcalc.config import read_config
from flopcalc.estimators import describe


@click.command(name="params", short_help="Parameters of a model.")
@model_argument
@click.option("--table", is_flag=True, help="List every parameter: its name, shape and size.")
@json_option
def command(model: str, table: bool, as_json: bool) -> None:
    """Parameters of MODEL, named and shaped as `named_parameters()` of the transformers model.

    Active parameters are those that one text token meets: routed experts by their top-k, the
    embedding table only where it is the output matrix too. Matmul parameters leave out norms, biases
    and other vectors.
    """
    model_type, fields = read_config(model)
    tree = describe(fields)
    counts = {
        "params": tree.num_params(),
        "active_params": tree.num_active_params(),
        "matmul_params": tree.num_matmul_params(),
    }
    rows = [(name, shape, prod(shape)) for name, shape in tree.parameters()] if table else []
    if as_json:
        listed = (
            {"table": [{"name": name, "shape": shape, "params": size} for name, shape, size in rows]} if table else {}
        )
        print_json({"model": model, "model_type": model_type, **counts, **listed})
        return
    title = f"{model} ({model_type})"
    if table:
        print_table(["name", "shape", "params"], [(name, list(shape), size) for name, shape, size in rows], title)
    else:
        print_table(["params", "active params", "matmul params"], [list(counts.values())], title)
