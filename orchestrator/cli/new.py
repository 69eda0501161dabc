"""The commands that begin something of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.store import path_of
from orchestrator.cli.terminal import emit, say, show

app = typer.Typer(
    help="Begin an audit of your own.", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
)


@app.callback()
def new() -> None:
    pass


@app.command("audit")
def audit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, as in engram run NAME.", show_default=False)],
    into: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="A folder of your own. [default: the current one, or Engram's checkout]"),
    ] = None,
    json: Json = False,
) -> None:
    """Write an audit in one file, with its test; both pass at once.

    In a folder of your own it is a package, which is found once it is installed.
    """
    from orchestrator.scaffold import new_audit

    folder = None if into is None else Path(path_of("--into", into))
    written = new_audit(name, folder)
    if json:
        emit({"files": list(map(str, written.files)), "next": list(written.following)})
        return
    for path in written.files:
        show(str(path))
    say("next:")
    for command in written.following:
        say(f"  {command}")
