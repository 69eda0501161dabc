"""The state of runs, by their folders and the store, whether a driver is running or not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.errors import SpecError, StoreError
from orchestrator.inspection import pages
from orchestrator.run_folder import receipt
from orchestrator.run_folder.journal import ENDS, Journal
from orchestrator.run_folder.merged_log import MergedLog
from orchestrator.run_folder.progress import Event
from orchestrator.spec.fields import nearest
from orchestrator.store import Store, lease

WORST = ("unreadable", "running", "paused", "interrupted", "failed", "finished")


@dataclass(frozen=True)
class Status:
    """A run: `running` while it has a living driver, else how its last start ended (`interrupted` if it just ceased).

    jobs: `planned`; `stored`, in the store now; `done` and `failed`, by the last start.
    """

    run: str
    audit: str
    state: str
    jobs: Mapping[str, int]
    created: str = ""
    active: float = 0.0  # when something was last written of it, seconds since 1970
    preset: str | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)
    cells: tuple[str, ...] = ()  # the runs of a sweep
    failures: tuple[tuple[str, str, str], ...] = ()  # (key, task, error)
    driver: str | None = None
    note: str = ""
    page: Path | None = None  # the report's file
    mlflow: str | None = None  # where tracking shows it

    @property
    def finished(self) -> bool:
        return self.state == "finished"


def journals(store: Store) -> dict[str, Journal]:
    """The folders of the store's runs by name."""
    names = sorted(path.name for path in store.folder("runs").iterdir() if path.is_dir())
    return {name: Journal(store.folder("runs", name)) for name in names if not name.startswith(".")}


def find(store: Store, word: str) -> Journal:
    """The run with this name, or the one whose name or hash has this prefix; SpecError for none or several."""
    there = journals(store)
    if word in there:
        return there[word]
    close = [name for name in there if name.startswith(word) or name.rpartition("-")[2].startswith(word)]
    if len(close) == 1 and word:
        return there[close[0]]
    if close and word:
        raise SpecError(f"{word!r} is the beginning of {', '.join(close)}; say which run is meant")
    if not there:
        raise SpecError(f"unknown run {word!r}; there are no runs in {store.location} yet")
    raise SpecError(f"unknown run {word!r} in {store.location}; `engram runs` lists them{nearest(word, there)}")


def newest(store: Store, unfinished: bool = False) -> Journal:
    """The run that was written to last; a sweep comes before its cells."""
    found = [each for each in overview(store) if not (unfinished and each.finished)]
    if not found:
        raise SpecError(f"there are no {'unfinished ' if unfinished else ''}runs in {store.location}")
    best = max(found, key=lambda each: (each.active, bool(each.cells)))
    return Journal(store.folder("runs", best.run))


def overview(store: Store) -> list[Status]:
    """All runs, the oldest first. One whose folder cannot be read is listed as that."""
    stored = store.keys()
    found = []
    for name, journal in journals(store).items():
        try:
            found.append(status(journal, store, stored))
        except StoreError as error:
            counts = dict.fromkeys(("planned", "stored", "done", "failed"), 0)
            found.append(Status(name, "", "unreadable", counts, active=_active(journal.folder), note=str(error)))
    return sorted(found, key=lambda each: (each.created, bool(each.cells), each.run))


def status(journal: Journal, store: Store, stored: Set[str] | None = None) -> Status:
    """The state of a run or sweep. StoreError if its folder cannot be read."""
    about = journal.about()
    stored = store.keys() if stored is None else stored
    if "cells" in about:
        return _sweep(journal, about, store, stored)
    holder = lease.holder(journal.folder)
    tasks = journal.tasks()
    last = journal.last_start()
    # What was computed without the failed jobs has other keys than planned.
    known = {*tasks, *(key for each in last if each["event"] == "tolerated" for key in each["instead"])}
    failed = {each["key"]: each for each in last if each["event"] == "failed" and "key" in each}
    failed = {key: each for key, each in failed.items() if key not in stored}
    jobs = {
        "planned": len(tasks),
        "stored": len(known & stored),
        "done": len({each["key"] for each in last if each["event"] == "done"}),
        "failed": len(failed),
    }
    end = next(
        (each for each in reversed(last) if each["event"] in ENDS and "key" not in each and "jobs" in each), None
    )
    # A driver that has logged the end still holds the run while it draws its page.
    state = end["event"] if end else "running" if holder else "interrupted"
    if state == "finished" and jobs["stored"] < jobs["planned"]:
        state = "interrupted"  # results have gone since; `resume` computes them again
    return Status(
        run=journal.run,
        audit=about["audit"],
        state=state,
        jobs=jobs,
        created=about.get("created", ""),
        active=_active(journal.folder),
        preset=about.get("preset"),
        setting=about.get("setting") or {},
        failures=tuple((key, each.get("task", ""), each.get("error", "")) for key, each in failed.items()),
        driver=f"process {holder.pid} on {holder.host}" if holder else None,
        note=(end or {}).get("note", "") if not holder else "",
        page=pages.page(journal.folder),
        mlflow=_address(journal.folder),
    )


def roots(journal: Journal) -> dict[str, tuple[str, ...]]:
    """The keys behind each of a run's tables: as planned, or without the failed jobs that its last start tolerated."""
    found = journal.roots()
    for each in journal.last_start():
        if each["event"] == "tolerated":
            found = {name: tuple(keys) for name, keys in each["roots"].items()}
    return found


def follow(journal: Journal, store: Store, seconds: float = 1.0) -> Iterator[Event]:
    """Yield the events of a run's or sweep's last start, as its observers get them, until it has no driver.

    A sweep's are those of its cells, each once. `seconds` lie between looks.
    """
    about = journal.about()
    runs = [journal.beside(name) for name in about.get("cells", [journal.run])]
    log = MergedLog(runs)
    while True:
        store.folder("runs")  # with what other machines have noted meanwhile
        driven = any(lease.holder(run.folder) for run in runs)
        events = log.read()
        starts = [at for at, event in enumerate(events) if event["event"] == "started"]
        if starts:
            events = events[starts[-1] :]
            yield _planned(journal.run, runs, events[0]["time"])
        yield from (event for event in events if event["event"] not in ("started", "stored"))
        if not driven:
            return
        time.sleep(seconds)


def _planned(name: str, runs: Sequence[Journal], begun: str) -> Event:
    """The events of the last start of these runs together."""
    tasks = {key: task for each in runs for key, task in each.tasks().items()}
    last = [event for each in runs for event in each.last_start()]
    stored = {event["key"] for event in last if event["event"] == "stored"}
    return {
        "time": begun,
        "event": "planned",
        "run": name,
        "planned": len(tasks),
        "stored": len(stored),
        "tasks": dict(Counter(tasks.values())),
    }


def _sweep(journal: Journal, about: Mapping[str, Any], store: Store, stored: Set[str]) -> Status:
    """A sweep from its cells. Jobs that cells share count once."""
    runs = [journal.beside(name) for name in about["cells"]]
    cells = [status(each, store, stored) for each in runs]
    keys = {key for each in runs for key in each.tasks()}
    failures = dict.fromkeys(failure for each in cells for failure in each.failures)
    done = {each["key"] for run in runs for each in run.last_start() if each["event"] == "done"}
    return Status(
        run=journal.run,
        audit=about["audit"],
        state=min((each.state for each in cells), key=WORST.index),
        jobs={
            "planned": len(keys),
            "stored": len(keys & stored),
            "done": len(done),
            "failed": len(failures),
        },
        created=about.get("created", ""),
        active=max(each.active for each in cells),
        preset=cells[0].preset,
        cells=tuple(about["cells"]),
        failures=tuple(failures),
        driver=next((each.driver for each in cells if each.driver), None),
        note=next((each.note for each in cells if each.note), ""),
        page=pages.page(journal.folder),
        mlflow=_address(journal.folder),
    )


def _address(folder: Path) -> str | None:
    found = receipt.read(folder)
    return found.address if found else None


def _active(folder: Path) -> float:
    times = [path.stat().st_mtime for name in ("events.jsonl", "run.json") if (path := folder / name).exists()]
    return max(times, default=0.0)
