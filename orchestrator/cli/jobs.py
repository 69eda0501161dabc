"""The commands that follow runs wherever they are computed, and those that hand them to a cluster."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from orchestrator.cli.options import (
    NO_OPTIONS,
    AuditOrFile,
    Fields,
    Json,
    Preset,
    Run,
    RunOptions,
    StoreOption,
    Sweep,
    command_line_spec,
    take_run_options,
)
from orchestrator.cli.store import command_store, path_of, store_option
from orchestrator.cli.terminal import emit, say, show
from orchestrator.errors import EngramError, SpecError, StoreError
from orchestrator.quantities import format_count, format_duration, printable, printable_lines
from orchestrator.store import given_location, is_there, open_store

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
        found = status.newest(opened) if what is None else explain.find_run_or_key(opened, what)
        if isinstance(found, str):
            _show_job(logs.job_log(opened, found), store, json)
            return
        lines = logs.run_lines(found, opened, follow)
        if json:
            emit({"run": found.run, "lines": list(lines)})
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
    ran = f"by {seen.worker} on {seen.device}, {seen.time[:19].replace('T', ' ')}{group}" if seen.worker else ""
    facts = {
        "job": f"{seen.task} {seen.key}".strip(),
        "state": seen.state,
        "runs": ", ".join(seen.runs),
        "ran": ran,
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
    from orchestrator.run_folder.other_runs import sweeps_with

    with command_store(store) as opened:
        journal = status.find(opened, run)
        seen = status.status(journal, opened)
        if seen.driver is None:
            raise EngramError(f"run {journal.run} has no driver: it is {seen.state}, and there is nothing to cancel")
        seconds = request_cancellation(opened, journal.run, *sweeps_with(journal))
    if json:
        emit({"run": journal.run, "driver": seen.driver, "seconds": seconds})
        return
    show(f"{seen.driver} is asked to end {journal.run}; it looks every {format_duration(seconds)}")
    say(f"how it goes: engram status {journal.run} --watch{store_option(store)}")


ServerOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="URL",
        envvar="RAY_API_SERVER_ADDRESS",
        help="The cluster's job server: http://HOST:8265, Ray's dashboard.",
    ),
]
SharedStore = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="PATH|URI", envvar="ENGRAM_STORE", help="A bucket, or a folder that every node sees."
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Show what it prints until it ends; exit with its code.")]


@take_run_options("submit")
def submit(
    what: AuditOrFile,
    fields: Fields = None,
    preset: Preset = None,
    sweep: Sweep = None,
    server: ServerOption = None,
    store: SharedStore = None,
    wait: Wait = False,
    options: RunOptions = NO_OPTIONS,
    json: Json = False,
) -> int:
    """Hand a run to a Ray cluster, and leave it there.

    The driver runs on the cluster, so this machine may go. The Python files of your own networks travel with it; data
    and the store must be reachable from every node. status, logs and cancel work from wherever the store is seen.
    """
    from orchestrator.executors.submission import JobServer, factory_files
    from orchestrator.planning.idle_fields import describe_idle_fields, find_idle_fields
    from orchestrator.runs.driven import check_undriven
    from orchestrator.spec.resolve import is_file, resolve_cells

    options = _withhold_password(options)
    asked = command_line_spec(what, fields, preset, sweep, store, options)
    if _has_password(asked.execution.get("mlflow")):
        raise SpecError(
            f"{what} names a tracking store with a password, which a cluster shows to its users; {CREDENTIALS}"
        )
    if server is None:
        raise SpecError("which cluster? give --address http://HOST:8265, or RAY_API_SERVER_ADDRESS")
    location = _shared_location(asked.store)
    idle = find_idle_fields(asked, {})
    if idle:
        say(describe_idle_fields(idle, asked))
    cells = resolve_cells(asked)
    files = factory_files(cell.config for cell in cells)
    if options["prices"] is not None:
        files["prices.yaml"] = path_of("--prices", options["prices"])
        options = options.replace(prices="prices.yaml")
    if is_file(what):
        files["audit.yaml"] = Path(what)
        what = "audit.yaml"
    arguments = ["run", what, *(fields or ()), "--address", "auto", "--store", location]
    arguments += [] if preset is None else ["--preset", preset]
    arguments += [word for each in sweep or () for word in ("--sweep", each)]
    if not options["again"]:
        with suppress(StoreError):  # the store may be out of reach from this machine
            if is_there(location):
                check_undriven(cells, open_store(location, create=False))
    cluster = JobServer(server)
    name, state = cluster.submit([*arguments, *options.words()], files, location)
    if json:
        emit({"submission": name, "address": server, "state": state, "store": location})
    else:
        show(f"{name} is {state.lower()} at {server}, with its results in {location}")
        say(f"how it goes: engram status --watch --store {location}; what it prints: ray job logs {name}")
    return cluster.wait(name, say) if wait else 0


CREDENTIALS = "set MLFLOW_TRACKING_URI on the cluster's nodes, or MLFLOW_TRACKING_USERNAME and _PASSWORD there"


def _has_password(uri: str | None) -> bool:
    """Whether a URI holds a password, or a user name, which may be a token."""
    try:
        return uri is not None and "@" in urlsplit(uri).netloc
    except ValueError:  # refused later
        return False


def _withhold_password(options: RunOptions) -> RunOptions:
    """The options as a command line may show them: without a tracking URI of the environment that holds a password.

    Raises SpecError for one that is given on the command line.
    """
    if not _has_password(options["mlflow"]):
        return options
    if options["mlflow"] != os.environ.get("MLFLOW_TRACKING_URI"):
        raise SpecError(f"--mlflow holds a password, which everybody on the cluster could read; {CREDENTIALS}")
    say(f"MLFLOW_TRACKING_URI holds a password and is not handed to the cluster; {CREDENTIALS}")
    return options.replace(mlflow=None)


def _shared_location(store: str | None) -> str:
    """The store of a run on a cluster, by a name that holds on every node. SpecError if none is given."""
    store = given_location(store)
    if store is None:
        raise SpecError("which store? give --store (or ENGRAM_STORE): a bucket, or a folder that every node sees")
    return store if "://" in store else str(Path(store).absolute())
