"""A run's folder: its configuration and plan, which are written once, and an append-only event log.

runs/ID/run.json       audit, preset, config, setting in a sweep (or the cells of a sweep), and the specification
runs/ID/plan.json      the keys behind each root, every key with its task, and the link before each link of a chain;
                       both files end in their digest
runs/ID/derivation.json the digest of the plan's inputs (`recorded_plan`)
runs/ID/verified.stamps the verified results, by the stamps of their files (`notes`)
runs/ID/events.jsonl   one event per line
runs/ID/ways/NAME.json the strategy for a device, chosen by the first process
runs/ID/tables/NAME/   the run's tables as Parquet parts
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import EngramError, StoreError, Unreadable, Unwritable
from orchestrator.planning.commitment import binding_of, draw_of
from orchestrator.planning.identity import KEY_FORMAT
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.quantities import jsonable
from orchestrator.run_folder import run_files
from orchestrator.run_folder.progress import Event, seconds_of, stored_results
from orchestrator.spec import audits
from orchestrator.spec.config_parts import plain
from orchestrator.spec.fields import coerce
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Spec
from orchestrator.store import atomic_write
from orchestrator.store.provenance import commit, now, versions
from orchestrator.store.regular_file import regular_bytes, regular_opener

Disclose = Callable[[Path, dict[str, Any]], dict[str, Any]]
STARTED = b'"event": "started"'  # in a log line; inside a string, the quotes would be escaped
KIND = re.compile(rb'\{"time": "[^"]*", "event": "(\w+)"')  # the start of a line
DONE = re.compile(rb'^\{"time": "[^"\n]*", "event": "done", "key": "([0-9a-f]+)", .*\}$', re.MULTILINE)
ENDS = ("finished", "decided", "failed", "interrupted", "paused")
COMPLETE = ("finished", "decided")  # end events of a run that has all needed results
REPLAN_EVENTS = ("tolerated", "curtailed")  # events that replace the planned keys behind the tables
NEUTRAL_EVENTS = ("step", "ready", "running")  # events that do not change results
TAIL = 64 * 1024  # bytes read from the end of the log, far more than the events after a run's end
SETTLED = 2.0  # seconds after which every cell's log has all events that any other has


class Journal:
    """The files in a run's folder. Creating a Journal reads nothing. Unreadable files raise StoreError when read.

    `disclose(folder, about)`, if given, returns the public part of `about`.
    """

    def __init__(self, folder: Path, disclose: Disclose | None = None) -> None:
        self.folder = folder
        self._disclose = disclose
        self._plan_content: Any = None

    @property
    def run(self) -> str:
        return self.folder.name

    @property
    def exists(self) -> bool:
        return self.folder.is_dir()

    def create(self, about: Mapping[str, Any], plan: Plan | None) -> None:
        """Create the folder with its configuration and plan, atomically. Has no effect if it exists."""
        if self.exists:
            return
        # Drivers in two containers may have the same process id.
        draft = self.folder.with_name(f".{self.folder.name}.{os.getpid()}.{os.urandom(8).hex()}")
        try:
            draft.mkdir(parents=True)
            _write(draft / "run.json", run_files.seal({"run": self.run, "created": now(), **about}, indent=2))
            if plan is not None:
                jobs = [[key, plan.task(key)] for key in plan.jobs]
                chains = {}
                if plan.after:
                    chains = {"after": plan.after}
                _write(draft / "plan.json", run_files.seal({"roots": plan.roots, "jobs": jobs, **chains}))
            with contextlib.suppress(FileExistsError):
                os.rename(draft, self.folder)
        except OSError as error:
            if not self.exists:  # otherwise another driver was faster and wrote the same content
                raise Unwritable(f"cannot write {self.folder}: {error.strerror or error}") from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def rewrite(self, about: Mapping[str, Any]) -> None:
        """Replace the content of `run.json` atomically, for example when a search gets another cell."""
        created = {}
        for name, value in self.about().items():
            if name in ("run", "created"):
                created[name] = value
        path = self.folder / "run.json"
        try:
            with atomic_write.put_in_place(path) as draft:
                _write(draft, run_files.seal({**created, **about}, indent=2))
        except OSError as error:
            raise Unwritable(f"cannot write {path}: {error.strerror or error}") from None

    def note_left_out(self, left_out: Sequence[Mapping[str, Any]]) -> None:
        """Record which of the preset's cells the last start of a run or sweep skipped, and why."""
        about = self.about()
        if about.get("left_out", []) != left_out:
            self.rewrite({**about, "left_out": left_out})

    def about(self) -> dict[str, Any]:
        """Return the content of `run.json`, including the run's configuration."""
        return self.public_part(self._read("run.json", run_files.check_about))

    @property
    def discloses(self) -> bool:
        """Whether only the public part of the content is returned."""
        return self._disclose is not None

    def public_part(self, about: dict[str, Any]) -> dict[str, Any]:
        """Return the public part of this `run.json` content if the journal has `disclose`.

        Otherwise, return all of it.
        """
        if self._disclose is None:
            return about
        return self._disclose(self.folder, about)

    def check(self) -> None:
        """Raise StoreError if the configuration or the plan cannot be read."""
        if "cells" not in self.about():
            self._plan()

    def parts(self) -> list[Journal]:
        """Return the runs of a sweep or of a search's trials. For a run, return the run itself."""
        return [self.sibling(name) for name in self.about().get("cells", ())] or [self]

    def sibling(self, run: str) -> Journal:
        """Return the journal of another run in the same store, such as a sweep's cell, with the same `disclose`."""
        return Journal(self.folder.with_name(run), self._disclose)

    def roots(self) -> dict[str, tuple[str, ...]]:
        """Return the planned keys behind each of the run's tables."""
        return {name: tuple(keys) for name, keys in self._plan()["roots"].items()}

    def tasks(self) -> dict[str, str]:
        """Return the task name of every planned key."""
        return dict(self._plan()["jobs"])

    def after(self) -> dict[str, str]:
        """Return the planned predecessor of each link in a chain."""
        return dict(self._plan().get("after", {}))

    def following(self) -> dict[str, set[str]]:
        """Return the planned successors of each link in a chain."""
        planned_keys = self.tasks()
        following: dict[str, set[str]] = {}
        for key, previous_link in self.after().items():
            if key in planned_keys:
                following.setdefault(previous_link, set()).add(key)
        return following

    def append(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Append events to the log. Events without a time get the current one."""
        stamp = now()
        lines = "".join(json.dumps({"time": stamp, **event}, default=str) + "\n" for event in events)
        try:
            log = os.open(self.folder / "events.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                end = os.fstat(log).st_size
                # A line truncated by a kill is terminated first.
                is_torn = bool(end) and os.pread(log, 1, end - 1) != b"\n"
                try:
                    atomic_write.write_all(log, ("\n" * is_torn + lines).encode())
                except BaseException:
                    os.truncate(log, end)  # all or nothing, because the events may be appended again
                    raise
            finally:
                os.close(log)
        except OSError as error:
            raise Unwritable(f"cannot write {self.folder / 'events.jsonl'}: {error.strerror or error}") from None

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events so far, oldest first. Truncated lines and lines that are not events are skipped."""
        yield from self.events_from(0)[0]

    def last_start(self, kinds: Container[str] | None = None) -> list[dict[str, Any]]:
        """Return the events since the last start, or all events if no start is logged. Earlier events are not parsed.

        With `kinds`, which must include `started`, only events of these kinds are parsed and returned.
        """
        return _events(self._since_last_start(), kinds)

    def has_finished(self) -> bool:
        """Whether all planned results existed when the run last ended, according to the last lines of the log."""
        try:
            with open(self.folder / "events.jsonl", "rb", opener=regular_opener) as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL))
                ends = []
                for event in _events(log.read()):
                    if event["event"] not in NEUTRAL_EVENTS:
                        ends.append(event)
        except OSError:
            return False
        jobs = ends[-1].get("jobs", {}) if ends else {}
        return bool(ends) and ends[-1]["event"] == "finished" and jobs.get("stored") == jobs.get("planned")

    def last_computed(self) -> set[str]:
        """Return the keys computed in the last start.

        They are found without parsing, because there may be a million.
        """
        return {key.decode() for key in DONE.findall(self._since_last_start())}

    def _since_last_start(self) -> bytes:
        """Return the log lines since the last start, or all lines if there is none."""
        end = len(data := self._log(0) or b"")
        while (start := data.rfind(STARTED, 0, end)) >= 0:
            begin = data.rfind(b"\n", 0, start) + 1
            events = _events(data[begin : data.find(b"\n", start)])
            if events and events[0]["event"] == "started":
                return data[begin:]
            end = start  # that line is incomplete or damaged
        return data

    def events_from(self, position: int) -> tuple[list[dict[str, Any]], int]:
        """Return the events from this byte of the log on, and the byte to continue from.

        An unfinished last line is left for the next call.
        """
        data = self._log(position)
        if data is None:
            return ([], 0)
        return (_events(data), position + len(data))

    def _log(self, position: int) -> bytes | None:
        """Return the complete log lines from this byte. Returns None if there is no log."""
        try:
            with open(self.folder / "events.jsonl", "rb", opener=regular_opener) as log:
                log.seek(position)
                data = log.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unreadable(f"cannot read {self.folder / 'events.jsonl'}: {error.strerror or error}") from error
        return data[: data.rfind(b"\n") + 1]

    def _plan(self) -> Any:
        """Return the content of `plan.json`, which is cached because the file never changes."""
        if self._plan_content is None:
            self._plan_content = self._read("plan.json", run_files.check_plan)
        return self._plan_content

    def _read(self, name: str, checked: Callable[[Any], None]) -> Any:
        path = self.folder / name
        try:
            content = run_files.unseal(regular_bytes(path))
            checked(content)
        except (OSError, ValueError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or error
            raise StoreError(
                f"cannot read {path}: {reason}; restore the file from a copy, or move its folder away and start the "
                "run again, which reuses the stored results"
            ) from None
        return content


def _events(lines: bytes, kinds: Container[str] | None = None) -> list[dict[str, Any]]:
    events = []
    for line in lines.splitlines():
        if kinds is not None and (match := KIND.match(line)) is not None and match[1].decode() not in kinds:
            continue
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line.decode(errors="replace"))
            if run_files.is_event(event) and (kinds is None or event["event"] in kinds):
                events.append(event)
    return events


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def cell_description(cell: Cell) -> dict[str, Any]:
    """Return the content of `run.json` for a cell."""
    about = {
        "audit": cell.audit,
        "preset": cell.preset,
        "setting": dict(cell.setting),
        "config": plain(cell.config),
        "versions": dict(versions()),
        "commit": commit(),
        "key_format": KEY_FORMAT,
        "binding": binding_of(draw_of(cell.audit, cell.config)),
    }
    return about | _spec_description(cell.spec_alone)


def sweep_description(cells: Sequence[Cell], runs: Sequence[str]) -> dict[str, Any]:
    """Return the content of `run.json` for a sweep of these cells, whose runs are given in the same order."""
    specs = [cell.spec for cell in cells]
    common_spec = None
    if all(spec == specs[0] for spec in specs):
        common_spec = specs[0]
    # A cell's folder may be older than the sweep and lack its setting, so the sweep stores the settings.
    settings = [dict(cell.setting) for cell in cells]
    return {"audit": cells[0].audit, "cells": list(runs), "settings": settings} | _spec_description(common_spec)


def renew_execution(journal: Journal, cell: Cell) -> None:
    """Record how the jobs of a reopened run are to run from now on, if this cell says so in another way than before."""
    about = journal.about()
    config = plain(cell.config)
    if about.get("config") == config:
        return
    with contextlib.suppress(EngramError):  # of an earlier version, or in a read-only store
        recorded = reopen_cell(journal).config
        is_same_question = plain(recorded, has_execution=False) == plain(cell.config, has_execution=False)
        if is_same_question and plain(recorded) != config:
            journal.rewrite({**about, "config": config, **_spec_description(cell.spec_alone)})


def _spec_description(spec: Spec | None) -> dict[str, Any]:
    """Return the specification as stored in `run.json`: the parts that affect results."""
    if spec is None:
        return {}
    fields = {"set": jsonable(spec.set), "sweep": jsonable(spec.sweep)}
    return {"asked": {"preset": spec.preset, **fields, "tolerate": spec.execution.get("tolerate", 0)}}


def reopen_cell(journal: Journal) -> Cell:
    """Restore the cell of a run from its folder."""
    about = journal.about()
    audit = audits.find(about["audit"]).audit
    config = coerce(about.get("config", {}), audit.config, "config")
    return Cell(
        about["audit"],
        config,
        about.get("preset"),
        about.get("setting") or {},
        stopping=audit.stopping,
        stand_ins=about.get("stand_ins", {}),
        accepted=tuple(about.get("accepted", ())),
    )


def has_current_keys(about: Mapping[str, Any]) -> bool:
    """Whether the run with this `run.json` was planned with the current key format."""
    return bool(about.get("key_format", 1) == KEY_FORMAT)


def check_key_format(journal: Journal) -> None:
    """Raise EngramError if the run or search was planned with another key format."""
    about = journal.about()
    if not has_current_keys(about):
        command = "run"
        if "search" in about:
            command = "search"
        raise EngramError(
            f"run {journal.run} was planned by a version of Engram with another key format; it can be read but not "
            f"continued: start the audit again with `engram {command} {about['audit']}`"
        )


def reopen_run(journal: Journal) -> tuple[Cell, Plan]:
    """Restore the cell and plan of a run from its folder.

    Raises EngramError if the current code plans different jobs.
    """
    check_key_format(journal)
    cell = reopen_cell(journal)
    plan = plan_of(cell)
    planned_tasks = journal.tasks()
    if set(planned_tasks) != set(plan.jobs):
        changed_tasks = sorted({plan.task(key) for key in plan.jobs if key not in planned_tasks})
        raise EngramError(
            f"run {journal.run} was planned by other versions of {', '.join(changed_tasks) or 'its tasks'}; "
            f"its results are kept: start the audit again with `engram run {cell.audit}`"
        )
    return cell, plan


class MergedLog:
    """Follows several logs. `read` returns newly added events in order of time.

    An event that appears in several logs is returned once. Two starts are the same event if their times are equal, two
    stored results within a start if their keys are equal, and other events if their entire content is equal. Events
    before `start_time`, when a sweep's cells were still separate runs, are omitted. `position` is the number of bytes
    read from the log of a single run.
    """

    def __init__(self, journals: Sequence[Journal], start_time: str = "") -> None:
        self.position = 0
        self._journals = journals
        self._positions = [0] * len(journals)
        self._start_time = start_time
        self._waiting: list[Event] = []
        self._last_start = ""
        self._returned: set[str] = set()

    def read(self, is_complete: bool = True) -> list[Event]:
        """Return the new events. With several logs, hold back events that a later one may still precede.

        A driver writes an event to all logs at once, so 2 s are enough to wait. With `is_complete`, all events are
        returned.
        """
        new_events: list[Event] = []
        for index, journal in enumerate(self._journals):
            events, self._positions[index] = journal.events_from(self._positions[index])
            new_events += events
        if len(self._journals) == 1:
            self.position = self._positions[0]
            return new_events
        self._waiting = sorted([*self._waiting, *new_events], key=lambda event: str(event["time"]))
        if is_complete:
            latest_time = math.inf
        else:
            latest_time = time.time() - SETTLED
        ready = [event for event in self._waiting if seconds_of(event["time"]) <= latest_time]
        self._waiting = self._waiting[len(ready) :]
        return [new for event in ready if event["time"] >= self._start_time and (new := self._new_part(event))]

    def _new_part(self, event: Event) -> Event | None:
        """Return the part of this event that no log has had since the last start. Returns None if there is none."""
        if event["event"] == "started":
            if event["time"] == self._last_start:
                return None
            self._last_start = event["time"]
            self._returned = set()
            return event
        if event["event"] == "stored":
            new_keys = {}
            for task, keys in stored_results(event).items():
                new_keys[task] = set(keys) - self._returned
            self._returned.update(*new_keys.values())
            new = {task: sorted(keys) for task, keys in new_keys.items() if keys}
            return {**event, "results": new} if new else None
        words = json.dumps(event, sort_keys=True)
        if words in self._returned:
            return None
        self._returned.add(words)
        return event
