"""The command line: `flopcalc COMMAND`. One file a command, imported when that command runs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

import click

from flopcalc import __version__
from flopcalc.cli.output import run

__all__ = ["main"]

COMMANDS = {
    "estimate": "flopcalc.cli.estimate",
    "params": "flopcalc.cli.params",
    "models": "flopcalc.cli.models",
    "compare": "flopcalc.cli.compare",
    "verify": "flopcalc.cli.verify",
    "devices": "flopcalc.cli.devices",
    "mfu": "flopcalc.cli.mfu",
    "budget": "flopcalc.cli.budget",
    "pack": "flopcalc.cli.pack",
    "registry": "flopcalc.cli.registry",
}
"""Command -> the module that holds it as `command`."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, module in COMMANDS.items() if find_spec(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        return command


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flopcalc")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Exact training FLOPs and MFU of a model from its Hugging Face config alone."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 where a check found differences, 2 for
    input that cannot be used."""
    return run(group, args)
