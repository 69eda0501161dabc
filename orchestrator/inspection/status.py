"""The state of runs, from their folders and the store, with or without a running driver."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from orchestrator.errors import SpecError, StoreError
from orchestrator.inspection import pages, search_results
from orchestrator.inspection.search_results import SearchResults
from orchestrator.run_folder import advances, notes, other_runs
from orchestrator.run_folder.code_changes import describe_accepted
from orchestrator.run_folder.journal import COMPLETE, ENDS, REPLAN_EVENTS, Journal, MergedLog
from orchestrator.run_folder.progress import Event, stored_results
from orchestrator.spec.fields import nearest
from orchestrator.store import Store, lease, stored_keys

STATUS_EVENTS = (
    "started",
    "ready",
    "failed",
    *REPLAN_EVENTS,
    *ENDS,
)  # events that determine the status of a run, in addition to job events
WORST = ("unreadable", "running", "paused", "interrupted", "failed", "decided", "finished")


@dataclass(frozen=True)
class Status:
    """The status of a run: `running` while it has a living driver, otherwise how its last start ended.

    The state is `interrupted` if the driver was killed.
    jobs: `planned`; `stored`, in the store now, excluding results that the last start could not verify; `done` and
    `failed`, in the last start.
    """

    run: str
    audit: str
    state: str
    jobs: Mapping[str, int]
    created: str = ""
    active: float = 0.0  # time of the last write to its folder, in Unix seconds
    preset: str | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)
    cells: tuple[str, ...] = ()  # the runs of a sweep
    left_out: tuple[str, ...] = ()  # one line per preset cell that the last start skipped
    accepted: tuple[str, ...] = ()  # one line per change to the user's code that the user accepted
    search: SearchResults | None = None  # only for a search, whose cells are the runs of its trials
    begun_by: str = ""  # for a trial, the search that started it last
    failures: tuple[tuple[str, str, str], ...] = ()  # (key, task, error)
    unsound: frozenset[str] = frozenset()  # results that were stored but could not be verified by the last start
    driver: str | None = None
    note: str = ""
    page: Path | None = None  # path of the report
    mlflow: str | None = None  # address of the tracked run
    look: Mapping[str, Any] | None = None  # number, cells and summed error; None for a sweep and before an answer
    ray: Mapping[str, str] = field(default_factory=dict)  # pages of Ray's dashboard, while the run has a driver

    @property
    def finished(self) -> bool:
        """Whether all needed results exist."""
        return self.state in COMPLETE


def journals(store: Store) -> dict[str, Journal]:
    """Return the run folders of the store by name."""
    names = sorted(path.name for path in store.folder("runs").iterdir() if path.is_dir())
    result = {}
    for name in names:
        if not name.startswith("."):
            result[name] = Journal(store.folder("runs", name))
    return result


def find(store: Store, word: str) -> Journal:
    """Return the run with this name, or the only one whose name or hash has this prefix.

    Raises SpecError if there is none or more than one.
    """
    journals_by_name = journals(store)
    if word in journals_by_name:
        return journals_by_name[word]
    matching_names = []
    for name in journals_by_name:
        if name.startswith(word) or name.rpartition("-")[2].startswith(word):
            matching_names.append(name)
    if len(matching_names) == 1 and word:
        return journals_by_name[matching_names[0]]
    if matching_names and word:
        raise SpecError(f"{word!r} is ambiguous: it matches {', '.join(matching_names)}; give more characters")
    if not journals_by_name:
        raise SpecError(f"unknown run {word!r}; {store.location} has no runs yet")
    raise SpecError(
        f"unknown run {word!r} in {store.location}; `engram runs` lists them{nearest(word, journals_by_name)}"
    )


def newest(store: Store, unfinished: bool = False) -> Journal:
    """Return the run of `newest_status`."""
    return Journal(store.folder("runs", newest_status(store, unfinished).run))


def newest_status(store: Store, unfinished: bool = False) -> Status:
    """Return the status of the run written to last. A sweep or search takes precedence over its cells.

    For an interrupted trial, the status of its search is returned, because a search records a trial only after it has
    ended.
    """
    statuses = overview(store)
    candidates = [candidate for candidate in statuses if not (unfinished and candidate.finished)]
    if not candidates:
        raise SpecError(f"{store.location} has no {'unfinished ' if unfinished else ''}runs")
    best = max(candidates, key=lambda candidate: (candidate.active, bool(candidate.cells)))
    searches = {}
    for status_of_run in statuses:
        if status_of_run.search is not None:
            searches[status_of_run.run] = status_of_run
    return searches.get(best.begun_by, best)


def overview(store: Store) -> list[Status]:
    """Return the status of all runs, oldest first. A run whose folder cannot be read has the state `unreadable`."""
    existing_keys = store.keys()
    statuses = []
    for name, journal in journals(store).items():
        try:
            statuses.append(status(journal, store, existing_keys))
        except StoreError as error:
            counts = dict.fromkeys(("planned", "stored", "done", "failed"), 0)
            statuses.append(Status(name, "", "unreadable", counts, active=_active(journal.folder), note=str(error)))
    return sorted(statuses, key=lambda entry: (entry.created, bool(entry.cells), entry.run))


def status(journal: Journal, store: Store, existing_keys: Set[str] | None = None) -> Status:
    """Return the status of a run, sweep or search. Raises StoreError if its folder cannot be read."""
    about = journal.about()
    if existing_keys is None:
        existing_keys = stored_keys(store)
    if search_results.is_search(about):
        return _search(journal, about, store, existing_keys)
    if "cells" in about:
        return _sweep(journal, about, store, existing_keys)
    holder = lease.holder(journal.folder)
    tasks = journal.tasks()
    last = journal.last_start(STATUS_EVENTS)
    # Results computed without tolerated failed jobs, or without unneeded jobs, have other keys than planned.
    replanned = [event for event in last if event["event"] in REPLAN_EVENTS]
    needed_keys = {*tasks, *(key for event in replanned for key in event["instead"])}
    unneeded = set()
    for event in replanned:
        if event["event"] == "curtailed":
            for key in event["keys"]:
                unneeded.add(key)
    failed = {}
    for event in last:
        if event["event"] == "failed" and "key" in event:
            failed[event["key"]] = event
    failed = {key: event for key, event in failed.items() if key not in existing_keys}
    jobs = {
        "planned": len(tasks),
        "done": len(journal.last_computed()),
        "failed": len(failed),
    }
    end = next(
        (event for event in reversed(last) if event["event"] in ENDS and "key" not in event and "jobs" in event), None
    )
    if end:
        unsound = frozenset(end.get("unsound", ()))
    else:
        unsound = frozenset()
    jobs["stored"] = len((needed_keys & existing_keys) - unsound)
    # A driver that has logged the end still holds the lock while it draws the page.
    if end:
        state = end["event"]
    elif holder:
        state = "running"
    else:
        state = "interrupted"
    if state == "finished" and jobs["stored"] < jobs["planned"]:
        state = "interrupted"  # results were removed since; `resume` computes them again
    if state == "decided" and not needed_keys - unneeded <= existing_keys - unsound:
        state = "interrupted"
    return Status(
        run=journal.run,
        audit=about["audit"],
        state=state,
        jobs=jobs,
        created=about.get("created", ""),
        active=_active(journal.folder),
        preset=about.get("preset"),
        setting=about.get("setting") or {},
        left_out=_left_out(about),
        accepted=tuple(describe_accepted(about)),
        begun_by=last[0].get("search", "") if last else "",
        failures=tuple((key, event.get("task", ""), event.get("error", "")) for key, event in failed.items()),
        unsound=unsound,
        driver=f"process {holder.pid} on {holder.host}" if holder else None,
        note=(end or {}).get("note", "") if not holder or state == "decided" else "",
        look=about.get("look"),
        page=pages.page(journal.folder),
        mlflow=_address(journal.folder),
        ray=_ray_pages(last) if holder else {},
    )


def _ray_pages(events: Sequence[Event]) -> Mapping[str, str]:
    """Return Ray's pages about the driver and nodes of a start. Returns an empty mapping if there is no dashboard."""
    return next((event["pages"] for event in reversed(events) if event["event"] == "ready" and "pages" in event), {})


def _left_out(about: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(cell["line"] for cell in about.get("left_out", ()))


def roots(journal: Journal) -> dict[str, tuple[str, ...]]:
    """Return the keys behind each table of a run, as planned or without failed or unneeded jobs."""
    current = journal.roots()
    for event in journal.last_start(REPLAN_EVENTS):
        current = {name: tuple(keys) for name, keys in event["roots"].items()}
    return current


def follow(journal: Journal, store: Store, seconds: float = 1.0) -> Iterator[Event]:
    """Yield the events of a run's or sweep's last start, as observers receive them, until it has no driver.

    For a sweep, each event of its cells is yielded once. For a search, the number of trials that have ended is yielded.
    `seconds` is the interval between reads.
    """
    for events in follow_reads(journal, store, seconds):
        yield from events


def follow_reads(journal: Journal, store: Store, seconds: float) -> Iterator[list[Event]]:
    """Yield the events of `follow` as lists, one per read."""
    if search_results.is_search(journal.about()):
        yield from _follow_search(journal, store, seconds)
        return
    runs = journal.parts()
    for events in read_events(journal, store, seconds):
        starts = [index for index, event in enumerate(events) if event["event"] == "started"]
        if starts:
            events = events[starts[-1] :]
            seconds_of_jobs = other_runs.mean_seconds(store.folder("runs"))
            planned_event = _planned_event(journal.run, runs, events[0]["time"], seconds_of_jobs)
            planned_events = [{**planned_event, "advances": str(advances.folder_of(store, journal.run) or "")}]
        else:
            planned_events = []
        # The `planned` event counts jobs by task, not by kind.
        job_events: list[Event] = []
        for event in events:
            if event["event"] not in ("started", "stored"):
                job_events.append({name: value for name, value in event.items() if name != "kind"})
        yield [*planned_events, *job_events]


def read_events(journal: Journal, store: Store, seconds: float | None) -> Iterator[list[Event]]:
    """Yield the events of a run, or of all parts of a sweep or search: first those so far, then new ones.

    They are read every `seconds` until no part has a driver, or only once if `seconds` is None.
    """
    runs = journal.parts()
    log = MergedLog(runs)
    while True:
        store.folder("runs")  # fetches files written by other machines
        driven = seconds is not None and any(lease.holder(run.folder) for run in (journal, *runs))
        yield log.read()
        if seconds is None or not driven:
            return
        time.sleep(seconds)


def _follow_search(journal: Journal, store: Store, seconds: float) -> Iterator[list[Event]]:
    while True:
        store.folder("runs")  # fetches files written by other machines
        driven = lease.holder(journal.folder)
        search = search_results.read_search(journal)
        yield [{"event": "step", "step": f"{search.made} of {search.planned} trials done"}]
        if not driven:
            return
        time.sleep(seconds)


def _planned_event(name: str, runs: Sequence[Journal], start_time: str, seconds: Mapping[str, float]) -> Event:
    """Return one `planned` event for the last start of these runs. `seconds` gives the time per job by group."""
    tasks = {key: task for run in runs for key, task in run.tasks().items()}
    last = [event for run in runs for event in run.last_start(("started", "stored"))]
    trains = {}
    for event in last:
        for task, count in event.get("trains", {}).items():
            trains[task] = count
    prices = {task: seconds for event in last for task, seconds in event.get("prices", {}).items()}
    stored_groups = (stored_results(event).values() for event in last if event["event"] == "stored")
    existing_keys = set(chain.from_iterable(chain.from_iterable(stored_groups)))
    costs = other_runs.mean_seconds_by_task(seconds)
    missing_counts = Counter(task for key, task in tasks.items() if key not in existing_keys)
    return {
        "time": start_time,
        "event": "planned",
        "run": name,
        "planned": len(tasks),
        "stored": len(existing_keys),
        "tasks": dict(Counter(tasks.values())),
        "kinds": {task: (count, costs.get(task)) for task, count in missing_counts.items()},
        "prices": prices,
        "trainings": sum(trains.get(task, 0) for task in tasks.values()),
        "trained": sum(trains.get(tasks[key], 0) for key in existing_keys if key in tasks),
    }


def _sweep(journal: Journal, about: Mapping[str, Any], store: Store, existing_keys: Set[str]) -> Status:
    """Return the status of a sweep from its cells. Shared jobs are counted once."""
    runs = [journal.sibling(name) for name in about["cells"]]
    cells = [status(run, store, existing_keys) for run in runs]
    keys = {key for run in runs for key in run.tasks()}
    failures = dict.fromkeys(failure for cell in cells for failure in cell.failures)
    computed_keys = set().union(*(run.last_computed() for run in runs))
    return Status(
        run=journal.run,
        audit=about["audit"],
        state=min((cell.state for cell in cells), key=WORST.index),
        jobs={
            "planned": len(keys),
            "stored": len((keys & existing_keys).difference(*(cell.unsound for cell in cells))),
            "done": len(computed_keys),
            "failed": len(failures),
        },
        created=about.get("created", ""),
        active=max(cell.active for cell in cells),
        preset=cells[0].preset,
        cells=tuple(about["cells"]),
        left_out=_left_out(about),
        accepted=tuple(dict.fromkeys(line for cell in cells for line in cell.accepted)),
        failures=tuple(failures),
        driver=next((cell.driver for cell in cells if cell.driver), None),
        note=next((cell.note for cell in cells if cell.note), ""),
        page=pages.page(journal.folder),
        mlflow=_address(journal.folder),
        ray=next((cell.ray for cell in cells if cell.ray), {}),
    )


def _search(journal: Journal, about: Mapping[str, Any], store: Store, existing_keys: Set[str]) -> Status:
    """Return the status of a search: that of its trials' runs, or `finished` once the search has its answer."""
    results = search_results.read_search(journal)
    holder = lease.holder(journal.folder)
    sweep_status = _sweep(journal, about, store, existing_keys)
    return replace(
        sweep_status,
        state="finished" if results.ended else "running" if holder else "interrupted",
        active=max(sweep_status.active, _active(journal.folder)),
        preset=about.get("preset"),
        search=results,
        driver=f"process {holder.pid} on {holder.host}" if holder else None,
        note="",
    )


def trials(statuses: Sequence[Status], store: Store) -> set[str]:
    """Return the runs started by searches. A run that began before its search was started by a user."""
    trial_runs: set[str] = set()
    creation_times = {status_of_run.run: status_of_run.created for status_of_run in statuses}
    for status_of_run in statuses:
        if status_of_run.search is not None:
            runs = {*status_of_run.cells, *(run.run for run in statuses if run.begun_by == status_of_run.run)}
            new_runs = set()
            for run in runs:
                if creation_times.get(run, "") >= status_of_run.created:
                    new_runs.add(run)
            trial_runs |= new_runs | {
                run for run in runs - new_runs if _first_start(store, run) >= status_of_run.created
            }
    return trial_runs


def _first_start(store: Store, run: str) -> str:
    """Return the time of a run's first event, or an empty string if it has none."""
    return str(next((event["time"] for event in Journal(store.folder("runs", run)).events()), ""))


def _address(folder: Path) -> str | None:
    delivered = notes.read_receipt(folder)
    return delivered.address if delivered else None


def _active(folder: Path) -> float:
    times = [path.stat().st_mtime for name in ("events.jsonl", "run.json") if (path := folder / name).exists()]
    return max(times, default=0.0)
