"""Provenance of a run's results: hosts, versions, devices, differences between them, and the starts of the run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.run import Run
from orchestrator.errors import StoreError
from orchestrator.run_folder.journal import COMPLETE, ENDS, MergedLog
from orchestrator.run_folder.progress import Event, RunProgress, seconds_of, stored_results
from orchestrator.store import Store
from orchestrator.tracking.facts import is_news

# Record fields that concern one job only. All other fields describe the environment and should be equal for all jobs.
OF_THE_JOB = {
    "key", "task", "version", "function", "config", "inputs", "content", "seconds", "finished", "worker", "together",
    "stack", "steps_per_second", "bytes_per_member", "device_bytes", "busy", "continued_from", "host_bytes",
}  # fmt: skip

Fields = Mapping[str, str]


@dataclass(frozen=True)
class Way:
    """A number of jobs computed in the same environment: versions, commit, device and threads."""

    jobs: int
    fields: Fields


@dataclass(frozen=True)
class Provenance:
    """The environments in which results were computed, most frequent first, and the fields in which they differ.

    `tasks` counts the results of each task, `seconds` is their computing time, and `together` the smallest and largest
    number of jobs in a call.
    """

    ways: tuple[Way, ...]
    differing: tuple[str, ...]
    hosts: Mapping[str, int]  # number of results per host
    workers: int  # number of processes
    together: tuple[int, int]
    tasks: Mapping[str, int]
    seconds: Mapping[str, float]
    last: str  # time at which the newest result was stored
    unread: int  # number of records that cannot be read

    @property
    def common(self) -> Fields:
        """The fields that are equal in all environments."""
        names = dict.fromkeys(name for way in self.ways for name in way.fields)
        alike = (name for name in names if name not in self.differing)
        result = {}
        for name in alike:
            result[name] = next(way.fields[name] for way in self.ways if name in way.fields)
        return result


def gather(store: Store, keys: Iterable[str]) -> Provenance:
    """Collect the provenance of these results. Reads only the records at the ends of the result files."""
    records = []
    unread = 0
    for key in keys:
        try:
            records.append(store.record(key, check=False))
        except StoreError:
            unread += 1
    # A result that was not stored by a worker may have a record with fewer fields.
    seconds: dict[str, float] = defaultdict(float)
    for record in records:
        seconds[record.get("task", "")] += record.get("seconds", 0.0)
    workers = Counter(record["worker"] for record in records if "worker" in record)
    hosts: Counter[str] = Counter()
    for worker, count in workers.items():
        hosts[worker.rpartition(":")[0]] += count
    together = [record["together"] for record in records if "together" in record] or [0]
    ways = _ways(Counter(frozenset(_fields(record).items()) for record in records))
    names = dict.fromkeys(name for way in ways for name in way.fields)
    return Provenance(
        ways=ways,
        differing=tuple(name for name in names if len({way.fields.get(name) for way in ways}) > 1),
        hosts=hosts,
        workers=len(workers),
        together=(min(together), max(together)),
        tasks=Counter(record.get("task", "") for record in records),
        seconds=seconds,
        last=max((record.get("finished", "") for record in records), default=""),
        unread=unread,
    )


def _fields(record: Mapping[str, Any]) -> Fields:
    """Return the record fields that should be equal for all jobs. Floats are measurements and are left out."""
    fields = {name: value for name, value in record.items() if name not in OF_THE_JOB}
    if "threads" not in fields:  # the task has not loaded torch, so its device is meaningless
        fields.pop("device", None)
    flat = {**fields.pop("versions", {}), **fields}
    result = {}
    for name, value in flat.items():
        if isinstance(value, str | int):
            result[name] = str(value)
    return result


def _ways(counted: Mapping[frozenset[tuple[str, str]], int]) -> tuple[Way, ...]:
    """Return the environments, most frequent first.

    An environment whose fields are a subset of another's is counted as that other one.
    """
    counts: dict[frozenset[tuple[str, str]], int] = {}
    for fields, jobs in sorted(counted.items(), key=lambda item: (-len(item[0]), -item[1])):
        fuller = next((known_fields for known_fields in counts if fields <= known_fields), fields)
        counts[fuller] = counts.get(fuller, 0) + jobs
    ways = (Way(jobs, dict(sorted(fields))) for fields, jobs in counts.items())
    return tuple(sorted(ways, key=lambda way: -way.jobs))


@dataclass(frozen=True)
class Start:
    """One start of a run. `ended` is its last event, or an empty string if the process was killed."""

    began: str
    ended: str
    progress: RunProgress
    damaged: int  # number of damaged or missing results
    conflicting: int  # number of recomputed results that differ from the stored ones


def starts(run: Run) -> tuple[Start, ...]:
    """Return the starts in which the run computed results, oldest first. For a sweep, merge the starts of all cells."""
    journals = [cell.journal for cell in run.cells] or [run.journal]
    tasks = {key: task for journal in journals for key, task in journal.tasks().items()}
    run_starts: list[Start] = []
    for events in _group_by_start(MergedLog(journals).read()):
        start = _start(events, len(tasks))
        # If a start found all results stored, it changed no result and did not redraw the page.
        if not run_starts or run_starts[-1].ended not in COMPLETE or any(map(is_news, events)):
            run_starts.append(start)
    return tuple(run_starts)


def _group_by_start(events: Iterable[Event]) -> list[list[Event]]:
    """Group the events by start. Events before the first start are dropped."""
    starts: list[list[Event]] = []
    for event in events:
        if event["event"] == "started":
            starts.append([event])
        elif starts:
            starts[-1].append(event)
    return starts


def _start(events: list[Event], planned_count: int) -> Start:
    names = [event["event"] for event in events]
    last = seconds_of(events[-1]["time"])
    progress = RunProgress(clock=lambda: last)
    stored_keys = [stored_results(event) for event in events if event["event"] == "stored"]
    stored_count = sum(len(keys) for results in stored_keys for keys in results.values())
    progress.take({**events[0], "planned": planned_count, "stored": stored_count})
    for event in events[1:]:
        if event["event"] != "stored":
            progress.take(event)
    ends = [event["event"] for event in events if event["event"] in ENDS and "key" not in event]
    return Start(
        began=events[0]["time"],
        ended=min(ends, key=("paused", "interrupted", "failed", "decided", "finished").index) if ends else "",
        progress=progress,
        damaged=names.count("damaged"),
        conflicting=names.count("differs"),
    )
