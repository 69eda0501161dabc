"""The commands of `engram`, grouped, and the exit codes of their errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from orchestrator.cli import ask, audit, describe, inspect, jobs, pages, run, search, streams, transfer, verify
from orchestrator.cli.store import DEBUG, one_line
from orchestrator.cli.terminal import say, show
from orchestrator.errors import EngramError, missing_package

# In the order in which users need them.
GROUPS = {
    "Commands that run audits": ("audit", "ask", "list", "show", "plan", "run", "resume", "search", "submit", "probes"),
    "Commands that look at runs": ("runs", "status", "logs", "cancel", "results", "compare", "report", "ui", "explain"),
    "Commands for the store and this machine": ("rerun", "verify", "sign", "gc", "store", "doctor", "new"),
}


class Grouped(TyperGroup):
    """Command group that lists the commands under headings in `engram --help`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # click's types, whose module depends on typer's version
        width = formatter.width - 6 - max(map(len, self.commands))
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])


app = typer.Typer(
    name="engram",
    cls=Grouped,
    help="Tests whether neural networks memorise their training data.",
    no_args_is_help=True,
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


COMMANDS: Mapping[str, Callable[..., Any]] = {
    "audit": audit.audit,
    "ask": ask.ask,
    "list": inspect.list_audits,
    "show": describe.show_audit,
    "plan": run.plan,
    "run": run.run,
    "resume": run.resume,
    "search": search.search,
    "submit": jobs.submit,
    "probes": run.probes,
    "runs": inspect.runs,
    "status": inspect.show_status,
    "logs": jobs.logs,
    "cancel": jobs.cancel,
    "results": inspect.results,
    "compare": pages.compare,
    "report": pages.report,
    "ui": inspect.ui,
    "explain": inspect.explain,
    "rerun": inspect.rerun,
    "verify": verify.verify,
    "sign": verify.sign,
    "gc": inspect.gc,
    "doctor": inspect.doctor,
}
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
app.add_typer(ask.new_app, name="new")
app.add_typer(transfer.store_app, name="store")
