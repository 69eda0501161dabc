"""The commands that follow runs wherever they are computed, and those that hand them to a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import Json, Run, StoreOption
from orchestrator.cli.store import command_store, store_option
from orchestrator.cli.terminal import emit, say, show
from orchestrator.errors import EngramError, SpecError
from orchestrator.quantities import format_count, format_duration, printable, printable_lines

if TYPE_CHECKING:
    from orchestrator.inspection.logs import JobLog


def logs(
    what: Annotated[str | None, typer.Argument(metavar="[RUN|KEY]", help="A run, the newest one, or a job.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run has no driver.")] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Show what happened in a run, or to one of its jobs.

    Of a job that failed: its traceback, the end of what it printed, where it ran, its seed, and the command that runs
    it alone under a debugger.
    """
    from orchestrator.inspection import explain, logs, status

    with command_store(store) as opened:
        try:
            journal = status.newest(opened) if what is None else status.find(opened, what)
        except SpecError as error:
            if what is None or "is the beginning of" in str(error):
                raise
            _show_job(logs.job_log(opened, explain.resolve_key(opened, what)), store, json)
            return
        lines = logs.run_lines(journal, opened, follow)
        if json:
            emit({"run": journal.run, "lines": list(lines)})
            return
        for line in lines:
            show(printable(line))


def _show_job(seen: JobLog, store: str | None, json: bool) -> None:
    again = f"engram rerun {seen.key[:12]} --pdb{store_option(store)}"
    if json:
        emit(vars(seen) | {"rerun": again})
        return
    seeds = ", ".join(f"{path}={seed}" for path, seed in seen.seeds.items())
    group = f", in a call of {format_count(seen.together, 'job')}" if seen.together > 1 else ""
    computed = f"by {seen.worker} on {seen.device}, {seen.time[:19].replace('T', ' ')}{group}" if seen.worker else ""
    facts = {
        "job": f"{seen.task} {seen.key}".strip(),
        "state": seen.state,
        "runs": ", ".join(seen.runs),
        "computed": computed,
        "seed": seeds,
        "alone": again,
    }
    for name, value in facts.items():
        if value:
            show(f"{name:<9} {printable(value)}")
    for line in seen.lines:
        show(printable(line))
    for name, text in {"traceback": seen.traceback, **seen.printed}.items():
        if text.strip():
            show(f"--- {name}")
            show(printable_lines(text.rstrip("\n")))


def cancel(run: Run, store: StoreOption = None, json: Json = False) -> None:
    """End a run, wherever its driver is: nothing more is begun, and what is stored stays.

    Its driver ends it as on Ctrl-C. The command that began it continues it.
    """
    from orchestrator.inspection import status
    from orchestrator.run_folder.cancellation import request_cancellation
    from orchestrator.run_folder.journal import now

    with command_store(store) as opened:
        journal = status.find(opened, run)
        seen = status.status(journal, opened)
        if seen.driver is None:
            raise EngramError(f"run {journal.run} has no driver: it is {seen.state}, and there is nothing to cancel")
        seconds = request_cancellation(opened, journal.run, now())
    if json:
        emit({"run": journal.run, "driver": seen.driver, "seconds": seconds})
        return
    show(f"{seen.driver} is asked to end {journal.run}; it looks every {format_duration(seconds)}")
    say(f"how it goes: engram status {journal.run} --watch{store_option(store)}")
