"""Commands whose `--help` lists the usual options, and whose `--help-all` lists all of them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from orchestrator.cli.terminal import show

COMMANDS = ("audit", "run", "resume", "search")
RARE = "rare"  # the help panel of options that only --help-all lists
SHOWS_ALL = "engram.help_all"


def _show_all_help(context: typer.Context, is_requested: bool) -> None:
    if is_requested:
        context.meta[SHOWS_ALL] = True
        show(context.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        help="Show all options and exit.",
        is_eager=True,
        callback=_show_all_help,
        show_default=False,
    ),
]


class ShortHelp(TyperCommand):
    """A command whose `--help` omits the options in the panel RARE."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List the arguments, then the options that this help shows."""
        arguments = []
        options = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                arguments.append(record)
            elif ctx.meta.get(SHOWS_ALL) or getattr(parameter, "rich_help_panel", None) != RARE:
                options.append(record)
        for heading, records in (("Arguments", arguments), ("Options", options)):
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)
