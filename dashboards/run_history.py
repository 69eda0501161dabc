"""The course of a run: each of its starts, what it found and did, and how long it took, from the log of its events."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from dashboards.run import Run
from orchestrator.run_folder.journal import ENDS
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
    events = [event for journal in journals for event in journal.events()]
    return tuple(_start(events, len(tasks)) for events in _by_start(events))


def _by_start(events: Iterable[Event]) -> list[list[Event]]:
    """The events of each start. Cells that are started together share its time, and jobs they share are told twice."""
    starts: list[list[Event]] = []
    told: set[str] = set()
    for event in sorted(events, key=lambda each: str(each.get("time", ""))):
        words = json.dumps({**event, "tasks": None})
        if event.get("event") == "started" and (not starts or starts[-1][0]["time"] != event["time"]):
            starts.append([event])
            told = set()
        elif starts and words not in told and event.get("event") != "started":
            told.add(words)
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
