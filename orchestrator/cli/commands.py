"""The commands of `engram`, grouped, and the exit codes of their errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from orchestrator.cli import (
    ask,
    audit,
    debug,
    describe,
    inspect,
    jobs,
    listing,
    pages,
    run,
    search,
    short_help,
    streams,
    training,
    transfer,
    verify,
)
from orchestrator.cli.store import DEBUG, one_line
from orchestrator.cli.terminal import say, show
from orchestrator.errors import EngramError, missing_package

# One line per situation, as printed by `engram` without arguments.
SITUATIONS = {
    "audit a model": "engram audit MODEL MEMBERS OTHERS",
    "audit a training": "engram run unique_feature --preset quickstart",
    "audit outputs": "engram ask --have outputs",
    "reproduce a paper": "engram show --papers",
    "look at results": "engram report --open",
}


class Grouped(TyperGroup):
    """Command group that lists the commands under headings in `engram --help`.

    A command with two words, such as `report sign`, belongs to the command with the first word.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options. Without any arguments, show a command for each situation instead."""
        if not args and not ctx.resilient_parsing:
            _show_situations()
            raise typer.Exit
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command for these words. The longest name wins."""
        name = " ".join(args[:2])
        if name in self.commands and len(args) > 1:
            return name, self.commands[name], args[2:]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # click's types, whose module depends on typer's version
        headings = visible_commands()
        width = formatter.width - 6 - max(len(name) for names in headings.values() for name in names)
        for heading, names in headings.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])


def _show_situations() -> None:
    width = max(map(len, SITUATIONS))
    for situation, line in SITUATIONS.items():
        show(f"{situation:<{width}}  {line}")
    say("engram --help lists all commands")


app = typer.Typer(
    name="engram",
    cls=Grouped,
    help="Tests whether neural networks memorise their training data.",
    rich_markup_mode=None,  # plain help is fast and looks the same in a file
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run_command() -> int:
    """Run the command given by the arguments and return its exit code."""
    streams.stand_in()
    try:
        arguments = [argument for argument in sys.argv[1:] if argument != DEBUG]  # may appear at any position
        code = command()(arguments, prog_name="engram", standalone_mode=False)
        sys.stdout.flush()
    except streams.Unprintable as error:
        code = _ended_by(error)
        streams.give_up_output()
    except BrokenPipeError:
        streams.give_up_output()  # the reader closed the pipe
        code = 1
    except ModuleNotFoundError as error:
        code = _ended_by(missing_package(error) or error)
    except Exception as error:
        code = _ended_by(error)
    return int(code or 0)


@cache
def command() -> Callable[..., Any]:
    """Return the click command for `app`, built once.

    Typer inspects the annotations of all commands each time it builds an app.
    """
    return typer.main.get_command(app)


def _version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version

        show(f"engram {version('engram-audit')}")
        raise typer.Exit


@app.callback()
def common(
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an unexpected error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    pass


def _ended_by(error: Exception) -> int:
    """Report the error that ended the command and return the exit code."""
    if isinstance(error, EngramError):
        say(f"engram: {one_line(error)}")
        return error.exit_code
    if hasattr(error, "format_message") and hasattr(
        error, "exit_code"
    ):  # typer's errors; which module defines them depends on the typer version
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
        else:
            context = getattr(error, "ctx", None)
            if context:
                command_path = context.command_path
            else:
                command_path = "engram"
            say(f"engram: {one_line(error.format_message())}; see {command_path} --help")
        return int(error.exit_code)
    if DEBUG in sys.argv:
        import traceback

        traceback.print_exception(error)
    else:
        say(f"engram: unexpected {type(error).__name__}: {one_line(error)} ({DEBUG} shows the traceback)")
    return 1


# Every command under its heading, in the order in which users need them. A command with two words is not listed in
# `engram --help`, but in the help of its first word.
COMMANDS: Mapping[str, Mapping[str, Callable[..., Any] | typer.Typer]] = {
    "Run an audit": {
        "audit": audit.audit,
        "ask": ask.ask,
        "show": describe.show_audit,
        "run": run.run,
        "resume": run.resume,
        "search": search.search,
        "probes": run.probes,
        "check-training": training.check_training,
    },
    "Look at results": {
        "runs": inspect.runs,
        "runs status": inspect.show_status,
        "runs logs": jobs.logs,
        "runs cancel": jobs.cancel,
        "results": inspect.results,
        "compare": pages.compare,
        "report": pages.report,
        "report sign": verify.sign,
        "report verify": verify.verify_page,
        "ui": inspect.ui,
    },
    "Maintain stores and solve problems": {"store": transfer.store_app, "debug": debug.debug_app},
}
# Former names, which are not listed but work as before until 1.0: what replaces them, and the command.
ALIASES: Mapping[str, tuple[str, Callable[..., Any] | typer.Typer]] = {
    "list": ("show", listing.list_audits),
    "plan": ("run --dry-run", run.plan),
    "submit": ("run --on URL", jobs.submit),
    "status": ("runs status", inspect.show_status),
    "logs": ("runs logs", jobs.logs),
    "cancel": ("runs cancel", jobs.cancel),
    "verify": ("store verify`, or `engram report verify PAGE", verify.verify),
    "sign": ("report sign", verify.sign),
    "gc": ("store gc", transfer.gc),
    "explain": ("debug explain", debug.explain),
    "rerun": ("debug rerun", debug.rerun),
    "doctor": ("debug doctor", debug.doctor),
    "new": ("debug new", ask.new_app),
}


def visible_commands() -> dict[str, list[str]]:
    """Return the names that `engram --help` lists, by heading."""
    return {heading: [name for name in commands if " " not in name] for heading, commands in COMMANDS.items()}


def _register(name: str, registered: Callable[..., Any] | typer.Typer, hidden: bool = False) -> None:
    if isinstance(registered, typer.Typer):
        app.add_typer(registered, name=name, hidden=hidden)
        return
    kind = TyperCommand
    if name in short_help.COMMANDS:
        kind = short_help.ShortHelp
    app.command(name, cls=kind, hidden=hidden)(registered)


for _commands in COMMANDS.values():
    for _name, _command in _commands.items():
        _register(_name, _command)
for _name, (_, _command) in ALIASES.items():
    _register(_name, _command, hidden=True)
