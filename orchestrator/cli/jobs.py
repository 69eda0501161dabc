"""The commands that inspect and cancel runs from any machine, and the one that submits a run to a cluster."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from orchestrator.cli.options import (
    NO_OPTIONS,
    TO_THE_END,
    AuditOrFile,
    Fields,
    GateOptions,
    Json,
    Preset,
    Run,
    RunOptions,
    StoppingOptions,
    StoreOption,
    Sweep,
    command_line_spec,
    take_run_options,
)
from orchestrator.cli.store import command_store, path_of, store_option
from orchestrator.cli.terminal import emit, say, show
from orchestrator.errors import EngramError, SpecError, StoreError
from orchestrator.quantities import format_count, format_duration, printable, printable_lines
from orchestrator.store import Store, given_location, is_there, open_store

if TYPE_CHECKING:
    from orchestrator.inspection.logs import JobLog
    from orchestrator.run_folder.journal import Journal
    from orchestrator.spec.specification import Spec


def logs(
    run_or_key: Annotated[
        str | None, typer.Argument(metavar="[RUN|KEY]", help="A run or a job. [default: the newest run]")
    ] = None,
    job: Annotated[
        str | None, typer.Argument(metavar="KEY", help="A job of the run, or the beginning of its key.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep printing until the run no longer has a driver, or the job has ended.")
    ] = False,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """Show the log of a run or of one of its jobs.

    For a job that runs your own program, shows its output and its latest metrics. For a failed job, shows the
    traceback, the last lines of output, where the job ran, its seed, and a command to run it alone under a debugger.
    """
    from orchestrator.inspection import explain, logs, status

    with command_store(store) as opened_store:
        name: Journal | str
        if run_or_key is None:
            name = status.newest(opened_store)
        elif job is None:
            name = explain.find_run_or_key(opened_store, run_or_key)
        else:
            name = logs.key_in_run(opened_store, run_or_key, job)
        if isinstance(name, str):
            if follow:
                _follow_job(opened_store, name, json)
            _show_job(logs.job_log(opened_store, name), store, json, is_followed=follow)
            return
        lines = logs.run_lines(name, opened_store, follow)
        if json:
            emit({"run": name.run, "lines": list(lines)})
            return
        for line in lines:
            show(printable(line))


def _follow_job(store: Store, key: str, json: bool) -> None:
    """Print the output of a job, each stream to the same stream of this process, until the job has ended."""
    from orchestrator.inspection.logs import follow_job

    for stream, text in follow_job(store, key):
        if not json:
            for line in text.splitlines():
                (show if stream == "stdout" else say)(printable(line))


def _show_job(job: JobLog, store: str | None, json: bool, is_followed: bool = False) -> None:
    command = f"engram debug rerun {job.key[:12]} --pdb{store_option(store)}"
    if json:
        logged = None if job.logged is None else vars(job.logged)
        emit(vars(job) | {"logged": logged, "rerun": command})
        return
    seeds = ", ".join(f"{path}={seed}" for path, seed in job.seeds.items())
    group = ""
    if job.together > 1:
        group = f", in a call of {format_count(job.together, 'job')}"
    execution_details = ""
    if job.worker:
        execution_details = f"by {job.worker} on {job.device}, {job.time[:19].replace('T', ' ')}{group}"
    facts = {
        "job": f"{job.task} {job.key}".strip(),
        "state": job.state,
        "runs": ", ".join(job.runs),
        "ran": execution_details,
        "seed": seeds,
        "metrics": "" if job.logged is None else job.logged.describe(),
        "alone": command,
    }
    for name, value in facts.items():
        if value:
            show(f"{name:<9} {printable(value)}")
    for line in job.lines:
        show(printable(line))
    printed = {} if is_followed else job.printed
    for name, text in {"traceback": job.traceback, **printed}.items():
        if text.strip():
            show(f"--- {name}")
            show(printable_lines(text.rstrip("\n")))


def cancel(run: Run, store: StoreOption = None, json: Json = False) -> None:
    """Stop a run from any machine. No further jobs are started, and stored results are kept.

    The driver stops as if you had pressed Ctrl-C. To continue the run, repeat the command that started it.
    """
    from orchestrator.inspection import status
    from orchestrator.run_folder.cancellation import request_cancellation
    from orchestrator.run_folder.other_runs import sweeps_with

    with command_store(store) as opened_store:
        journal = status.find(opened_store, run)
        state = status.status(journal, opened_store)
        if state.driver is None:
            raise EngramError(f"run {journal.run} is {state.state} and has no driver, so it cannot be cancelled")
        seconds = request_cancellation(opened_store, journal.run, *sweeps_with(journal))
    if json:
        emit({"run": journal.run, "driver": state.driver, "seconds": seconds})
        return
    show(f"asked {state.driver} to stop {journal.run}; it checks every {format_duration(seconds)}")
    say(f"to follow the run: engram runs status {journal.run} --watch{store_option(store)}")


ServerOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="URL",
        envvar="RAY_API_SERVER_ADDRESS",
        help="The job server of the cluster (the Ray dashboard), http://HOST:8265.",
    ),
]
SharedStore = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="PATH|URI", envvar="ENGRAM_STORE", help="A bucket, or a folder that all nodes can access."
    ),
]
WaitForOutput = Annotated[
    bool, typer.Option("--wait", help="Wait for the run, print its output and exit with its exit code.")
]


@take_run_options("submit")
def submit(
    audit_or_file: AuditOrFile,
    fields: Fields = None,
    preset: Preset = None,
    sweep: Sweep = None,
    server: ServerOption = None,
    store: SharedStore = None,
    wait: WaitForOutput = False,
    options: RunOptions = NO_OPTIONS,
    json: Json = False,
) -> int:
    """Submit a run to a Ray cluster and return.

    The driver runs on the cluster, so you can switch off your own machine. Engram uploads the Python files of your
    networks. Data and the store must be accessible from every node. You can use status, logs and cancel on any machine
    that can access the store.
    """
    submission = Submission(audit_or_file, fields or [], preset, sweep or [], options)
    return submit_run(submission, server, store, wait, json)


@dataclass(frozen=True)
class Submission:
    """The run that a command line submits."""

    audit_or_file: str
    fields: list[str]
    preset: str | None
    sweep: list[str]
    options: RunOptions
    stopping: StoppingOptions = TO_THE_END
    fail_on: str | None = None

    def spec(self, store: str | None) -> Spec:
        """Return the specification of the run."""
        return self.stopping.apply(
            command_line_spec(self.audit_or_file, self.fields, self.preset, self.sweep, store, self.options)
        )

    def words(self, audit_or_file: str, location: str) -> list[str]:
        """Return the words of the command that the cluster runs."""
        words = ["run", audit_or_file, *self.fields, "--address", "auto", "--store", location]
        single_options = {"--preset": self.preset, **self.stopping.given(), "--fail-on": self.fail_on}
        for name, value in single_options.items():
            if value is not None:
                words += [name, str(value)]
        for axis in self.sweep:
            words += ["--sweep", axis]
        return [*words, *self.options.words()]


def submit_run(submission: Submission, server: str | None, store: str | None, wait: bool, json: bool) -> int:
    """Submit a run to the job server of a Ray cluster and return the exit code: with `wait`, the one of the run."""
    from orchestrator.cli.gate import open_gate
    from orchestrator.executors.submission import JobServer, factory_files
    from orchestrator.planning.idle_fields import describe_idle_fields, find_idle_fields
    from orchestrator.runs.driven import check_undriven
    from orchestrator.spec.resolve import is_file, resolve_cells

    submission = replace(submission, options=_withhold_password(submission.options))
    spec = submission.spec(store)
    audit_or_file = submission.audit_or_file
    if _has_password(spec.execution.get("mlflow")):
        raise SpecError(
            f"{audit_or_file} names a tracking store with a password, which every user of the cluster could read; "
            f"{CREDENTIALS}"
        )
    if server is None:
        raise SpecError("--address is missing; pass http://HOST:8265, or set RAY_API_SERVER_ADDRESS")
    location = _shared_location(spec.store)
    idle_fields = find_idle_fields(spec, {})
    if idle_fields:
        say(describe_idle_fields(idle_fields, spec))
    cells = resolve_cells(spec)
    open_gate(GateOptions(submission.fail_on), cells[0].audit)  # refused here rather than on the cluster
    files = factory_files(cell.config for cell in cells)
    prices = submission.options["prices"]
    if prices is not None:
        files["prices.yaml"] = path_of("--prices", prices)
        submission = replace(submission, options=submission.options.replace(prices="prices.yaml"))
    if is_file(audit_or_file):
        files["audit.yaml"] = Path(audit_or_file)
        audit_or_file = "audit.yaml"
    if not submission.options["again"]:
        with suppress(StoreError):  # this machine may be unable to reach the store
            if is_there(location):
                check_undriven(cells, open_store(location, create=False))
    cluster = JobServer(server)
    name, state = cluster.submit(submission.words(audit_or_file, location), files, location)
    if json:
        emit({"submission": name, "address": server, "state": state, "store": location})
    else:
        show(f"{name} is {state.lower()} at {server}; its results are stored in {location}")
        say(f"to follow the run: engram runs status --watch --store {location}; to see its output: ray job logs {name}")
    return cluster.wait(name, say) if wait else 0


CREDENTIALS = "set MLFLOW_TRACKING_URI on the cluster's nodes, or MLFLOW_TRACKING_USERNAME and _PASSWORD there"


def _has_password(uri: str | None) -> bool:
    """Return whether a URI contains a password, or a user name, which may be a token."""
    try:
        return uri is not None and "@" in urlsplit(uri).netloc
    except ValueError:  # invalid URIs are rejected later
        return False


def _withhold_password(options: RunOptions) -> RunOptions:
    """Return the options without a password-bearing tracking URI taken from the environment.

    A cluster shows command lines to its users. Raises SpecError if the URI was given on the command line.
    """
    if not _has_password(options["mlflow"]):
        return options
    if options["mlflow"] != os.environ.get("MLFLOW_TRACKING_URI"):
        raise SpecError(f"--mlflow contains a password, which every user of the cluster could read; {CREDENTIALS}")
    say(f"MLFLOW_TRACKING_URI contains a password and is not passed to the cluster; {CREDENTIALS}")
    return options.replace(mlflow=None)


def _shared_location(store: str | None) -> str:
    """Return the store location for a cluster run, identical on every node. Raises SpecError if none is given."""
    store = given_location(store)
    if store is None:
        raise SpecError("--store is missing; pass a bucket or a folder that all nodes can access, or set ENGRAM_STORE")
    if "://" in store:
        return store
    return str(Path(store).absolute())
