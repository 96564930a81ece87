"""The table of commands, and the group that loads each one when it is needed.

A command is a module with a typer `app`: a single function, or a group of sub-commands. It may import
typer and the standard library at its top, nothing else: `--help` loads every one of them.
"""

import importlib
import re
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from ..errors import unknown

# In the order of `reweigh --help`. To add a command: its module here, and its name.
COMMANDS = (
    "demo", "train", "predict", "export", "audit", "fix", "review", "reproduce", "report", "data",
    "bench",
)  # fmt: skip


_MARKUP = re.compile(r"(\[[a-z#/@][^\[]*?\])")


class Commands(TyperGroup):
    """A group whose commands are the table above."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name, imported now; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".{cmd_name}", __package__)
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        _lay_out(command)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command to run, or an error with the nearest name."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise unknown("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)


def _lay_out(command: Any) -> None:
    """Paragraphs of the help flow with the width of the terminal; words in brackets are no markup."""
    if command.help:
        paragraphs = command.help.split("\n\n")
        command.help = "\n\n".join(" ".join(p.split("\n")) for p in paragraphs)
    for parameter in command.params:
        if getattr(parameter, "help", None):
            parameter.help = _MARKUP.sub(r"\\\1", parameter.help)
    for each in getattr(command, "commands", {}).values():
        _lay_out(each)


app = typer.Typer(cls=Commands, add_completion=False)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"reweigh {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Train on data you do not fully trust, guided by a handful of examples you do."""


def root() -> Any:
    """The whole command line as one click command."""
    return typer.main.get_command(app)
