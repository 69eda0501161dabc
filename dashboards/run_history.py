"""The starts of a run, from its log: the results each found, computed and lost, and how long it took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dashboards.run import Run
from orchestrator.run_folder.journal import ENDS, MergedLog
from orchestrator.run_folder.progress import Event, RunProgress, seconds_of, stored_results


@dataclass(frozen=True)
class Start:
    """One start of a run. `ended` is the event it ended with; empty if it was killed."""

    began: str
    ended: str
    progress: RunProgress
    damaged: int  # results that were found damaged or gone
    conflicting: int  # results computed anew that differ from the stored ones


def starts(run: Run) -> tuple[Start, ...]:
    """The starts of a run, the oldest first; for a sweep, those of all its cells merged."""
    journals = [cell.journal for cell in run.cells] or [run.journal]
    tasks = {key: task for journal in journals for key, task in journal.tasks().items()}
    return tuple(_start(events, len(tasks)) for events in _group_by_start(MergedLog(journals).read()))


def _group_by_start(events: Iterable[Event]) -> list[list[Event]]:
    """The events of each start; events before the first are dropped."""
    starts: list[list[Event]] = []
    for event in events:
        if event["event"] == "started":
            starts.append([event])
        elif starts:
            starts[-1].append(event)
    return starts


def _start(events: list[Event], planned: int) -> Start:
    names = [event["event"] for event in events]
    last = seconds_of(events[-1]["time"])
    progress = RunProgress(clock=lambda: last)
    found = [stored_results(event) for event in events if event["event"] == "stored"]
    stored = sum(len(keys) for results in found for keys in results.values())
    progress.take({**events[0], "planned": planned, "stored": stored})
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
