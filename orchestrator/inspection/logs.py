"""The log of a run, line by line, and the record of one of its jobs: where it ran and what it printed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.inspection import explain, status
from orchestrator.quantities import format_count, format_duration
from orchestrator.run_folder.job_metrics import LoggedMetrics, merge_latest, read_metrics
from orchestrator.run_folder.journal import ENDS, Journal
from orchestrator.run_folder.progress import Event
from orchestrator.store import Store, job_files, lease
from orchestrator.store.failure_log import FailureLog

FOLLOW_SECONDS = 1.0  # between two reads of a running job's output
UNLOGGED_EVENTS = ("stored", "ready", "running", "step")  # events that have no line in the log


@dataclass(frozen=True)
class JobLog:
    """A job: its task, key and state, the runs that plan it, and where and when it last ran.

    `seeds` maps the paths of configuration fields named `seed` to their values. `printed` contains the output of a job
    whose task keeps it, and otherwise the last lines of stdout and stderr if the job failed. `logged` has the latest
    value of each metric that the job has logged. `lines` are the events of the job in these runs.
    """

    key: str
    task: str
    state: str
    runs: tuple[str, ...]
    worker: str
    time: str
    device: str
    together: int
    seeds: Mapping[str, int]
    traceback: str
    printed: Mapping[str, str]
    logged: LoggedMetrics | None
    lines: tuple[str, ...]


def run_lines(journal: Journal, store: Store, follow: bool = False) -> Iterator[str]:
    """Yield one line per event since the last start of a run or sweep. For a search, yield the events of its trials.

    If `follow` is true, lines are yielded as events occur, until no driver is left.
    """
    first = True
    for events in status.read_events(journal, store, 1.0 if follow else None):
        starts = []
        for index, event in enumerate(events):
            if event["event"] == "started":
                starts.append(index)
        yield from _event_lines(events[starts[-1] :] if first and starts else events, of_run=True)
        first = first and not starts


def job_log(store: Store, key: str) -> JobLog:
    """Return the record of a job. Raises SpecError if its key is neither planned nor stored."""
    answer = explain.key(store, key)
    text = None
    if answer["state"] != "stored":
        text = store.failure(key)
    failure = FailureLog.from_text(text or "")
    events = [event for run in answer["runs"] for event in _events_of(Journal(store.folder("runs", run)), key)]
    last_output = {name: text for name, text in (("stdout", failure.stdout), ("stderr", failure.stderr)) if text}
    logged = merge_latest(read_metrics(store, key))
    return JobLog(
        key=key,
        task=answer.get("task", ""),
        state=answer["state"],
        runs=tuple(answer["runs"]),
        worker=answer.get("worker") or failure.worker,
        time=answer.get("finished") or failure.time,
        device=answer.get("device") or failure.device,
        together=answer.get("together") or failure.together,
        seeds=seeds_in(answer.get("config")),
        traceback=failure.traceback,
        printed=job_files.read_streams(store, key) or last_output,
        logged=logged,
        lines=tuple(_event_lines(sorted(events, key=lambda event: str(event["time"])), of_run=False)),
    )


def key_in_run(store: Store, run: str, word: str) -> str:
    """Return the only key with this prefix among the jobs of a run. Raises SpecError if there is none or several."""
    journal = status.find(store, run)
    keys = {key for part in journal.parts() for key in part.tasks() if key.startswith(word)}
    if len(keys) == 1:
        return keys.pop()
    if keys:
        raise SpecError(f"{len(keys)} jobs of {journal.run} begin with {word!r}; give more characters")
    raise SpecError(f"no job of {journal.run} begins with {word!r}; `engram explain {journal.run}` counts its jobs")


def follow_job(store: Store, key: str) -> Iterator[tuple[str, str]]:
    """Yield what a job prints, as (stream, text), until it has ended or no run that plans it has a driver."""
    yield from job_files.follow_streams(store, key, _wait_for_end(store, key))


def _wait_for_end(store: Store, key: str) -> Iterator[bool]:
    """Yield false while the job may be running, and finally true."""
    runs = explain.PlannedKeys(store).runs_with(key)
    while key not in store and any(lease.holder(run.folder) and not _has_failed(run, key) for run in runs):
        yield False
        time.sleep(FOLLOW_SECONDS)
        store.folder("runs")  # fetches files written by other machines
    yield True


def _has_failed(journal: Journal, key: str) -> bool:
    return any(event.get("key") == key for event in journal.last_start(("failed",)))


def _events_of(journal: Journal, key: str) -> list[Event]:
    return [event for event in journal.events() if event.get("key") == key]


def seeds_in(config: Any, path: str = "") -> dict[str, int]:
    """Return the fields named `seed` in a plain configuration, by dotted path."""
    seeds: dict[str, int] = {}
    if isinstance(config, Mapping):
        for name, value in config.items():
            if path:
                field_path = f"{path}.{name}"
            else:
                field_path = str(name)
            if name == "seed" and isinstance(value, int):
                seeds[field_path] = value
            seeds |= seeds_in(value, field_path)
    elif isinstance(config, Sequence) and not isinstance(config, str):
        for index, value in enumerate(config):
            seeds |= seeds_in(value, f"{path}.{index}")
    return seeds


def _event_lines(events: Iterable[Event], of_run: bool) -> Iterator[str]:
    for event in events:
        if event["event"] not in UNLOGGED_EVENTS:
            has_job_log = "error" in event and "key" in event  # the log of a run refers to the log of the job
            hint = ""
            if has_job_log and of_run:
                hint = f"; engram runs logs {event['key'][:12]}"
            yield f"{str(event['time'])[:19].replace('T', ' ')}  {_describe(event)}{hint}"


def _describe(event: Event) -> str:
    """Describe an event without its time."""
    kind = event["event"]
    job = ""
    if "key" in event:
        job = f"{event.get('task', '')} {event['key'][:12]}"
    match kind:
        case "started":
            stored_note = ""
            if event["stored"]:
                stored_note = f", {event['stored']} of them stored already"
            return f"started by {event['driver']}: {format_count(event['planned'], 'job')}{stored_note}"
        case "done":
            return f"done: {job} in {format_duration(event['seconds'])} by {event['worker']}"
        case "failed" if job:
            return f"failed: {job}: {event.get('error', '')}"
        case "missing":
            return f"inputs missing: {job}: {', '.join(key[:12] for key in event['inputs'])}"
        case "told":
            return str(event["line"])
        case "tolerated":
            return f"tolerated: {format_count(len(event['keys']), 'failed job')}"
        case "curtailed":
            return f"decided: {format_count(len(event['keys']), 'job')} not needed"
        case _ if kind in ENDS and "jobs" in event:
            jobs = event["jobs"]
            note = ""
            if event.get("note"):
                note = f": {event['note']}"
            return f"{kind}{note}; {jobs['stored']} of {jobs['planned']} jobs stored, {jobs['failed']} failed"
        case _:
            reason = event.get("cause") or event.get("problem") or ""
            return f"{kind}: {job}" + (f": {reason}" if reason else "")
