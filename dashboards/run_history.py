"""The course of a run: each of its starts, what it found and did, and how long it took, from the log of its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dashboards.run import Run
from orchestrator.run_folder.journal import ENDS
from orchestrator.run_folder.merged_log import MergedLog
from orchestrator.run_folder.progress import Event, RunProgress, seconds_of


@dataclass(frozen=True)
class Start:
    """One start of a run. `ended` says how; it is empty where the log just ceases."""

    began: str
    ended: str
    tally: RunProgress
    damaged: int  # results that were found damaged or gone
    conflicting: int  # results computed anew that differ from the stored ones


def course(run: Run) -> tuple[Start, ...]:
    """The starts of a run, the oldest first; of a sweep, those of its cells together."""
    journals = [cell.journal for cell in run.cells] or [run.journal]
    tasks = {key: task for journal in journals for key, task in journal.tasks().items()}
    return tuple(_start(events, len(tasks)) for events in _by_start(MergedLog(journals).read()))


def _by_start(events: Iterable[Event]) -> list[list[Event]]:
    """The events of each start; what precedes the first is left out."""
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
    tally = RunProgress(clock=lambda: last)
    tally.take({**events[0], "planned": planned, "stored": names.count("stored")})
    for event in events[1:]:
        if event["event"] != "stored":
            tally.take(event)
    ends = [event["event"] for event in events if event["event"] in ENDS and "key" not in event]
    return Start(
        began=events[0]["time"],
        ended=min(ends, key=("paused", "interrupted", "failed", "finished").index) if ends else "",
        tally=tally,
        damaged=names.count("damaged"),
        conflicting=names.count("differs"),
    )
