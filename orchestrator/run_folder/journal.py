"""A run's folder: its config and plan, written once, and the log of its events, only ever appended to.

runs/ID/run.json       audit, preset, config, what a sweep varied, or the cells of a sweep; and what was asked for
runs/ID/plan.json      the keys behind each root, every key with its task, and the link before each link of a chain;
                       both with a digest of themselves
runs/ID/events.jsonl   one event a line
runs/ID/ways/NAME.json how jobs are computed on a device, as chosen by the first who had to
runs/ID/tables/NAME/   the run's tables as Parquet parts
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.errors import StoreError, Unwritable
from orchestrator.planning.plan import Plan
from orchestrator.run_folder import sealed, shapes

Told = Callable[[Path, dict[str, Any]], dict[str, Any]]
STARTED = b'"event": "started"'  # of a line of the log; where a text holds these words its quotes are escaped
ENDS = ("finished", "failed", "interrupted", "paused")


class Journal:
    """What a run's folder holds. Opening it reads nothing; what cannot be read raises StoreError.

    `told(folder, about)` is how what it is about is told, to those who are not to see it all.
    """

    def __init__(self, folder: Path, told: Told | None = None) -> None:
        self.folder = folder
        self._told = told

    @property
    def run(self) -> str:
        return self.folder.name

    @property
    def exists(self) -> bool:
        return self.folder.is_dir()

    def create(self, about: Mapping[str, Any], plan: Plan | None) -> None:
        """Make the folder with its config and plan, whole or not at all; nothing happens if it is there already."""
        if self.exists:
            return
        # Drivers in two containers may have one process number.
        aside = self.folder.with_name(f".{self.folder.name}.{os.getpid()}.{os.urandom(8).hex()}")
        try:
            aside.mkdir(parents=True)
            _write(aside / "run.json", sealed.seal({"run": self.run, "created": now(), **about}, indent=2))
            if plan is not None:
                jobs = [[key, plan.task(key)] for key in plan.jobs]
                chains = {"after": plan.after} if plan.after else {}
                _write(aside / "plan.json", sealed.seal({"roots": plan.roots, "jobs": jobs, **chains}))
            with contextlib.suppress(FileExistsError):
                os.rename(aside, self.folder)
        except OSError as error:
            if not self.exists:  # another driver may have been first, which is as good
                raise Unwritable(f"cannot write {self.folder}: {error.strerror or error}") from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def about(self) -> dict[str, Any]:
        """The run's config and what else was known when its folder was made."""
        about: dict[str, Any] = self._read("run.json", shapes.about)
        return about if self._told is None else self._told(self.folder, about)

    def check(self) -> None:
        """StoreError where the config or the plan cannot be read."""
        if "cells" not in self.about():
            self._plan()

    def beside(self, run: str) -> Journal:
        """The journal of another run of the same store, such as a sweep's cell, with the same things withheld."""
        return Journal(self.folder.with_name(run), self._told)

    def roots(self) -> dict[str, tuple[str, ...]]:
        """The keys behind each of the run's tables, as planned."""
        return {name: tuple(keys) for name, keys in self._plan()["roots"].items()}

    def tasks(self) -> dict[str, str]:
        """Every planned key with the name of its task."""
        return dict(self._plan()["jobs"])

    def following(self) -> dict[str, set[str]]:
        """The planned links after each link of a chain."""
        plan = self._plan()
        planned = dict(plan["jobs"])
        found: dict[str, set[str]] = {}
        for key, before in plan.get("after", {}).items():
            if key in planned:
                found.setdefault(before, set()).add(key)
        return found

    def append(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Add events to the log, each with its time, which is now where it has none."""
        stamp = now()
        text = "".join(json.dumps({"time": stamp, **event}, default=str) + "\n" for event in events)
        try:
            with open(self.folder / "events.jsonl", "a+b", buffering=0) as log:
                end = log.tell()
                if end and (log.seek(-1, os.SEEK_END), log.read(1))[1] != b"\n":
                    text = "\n" + text  # after a line that a kill has torn
                rest = memoryview(text.encode())
                try:
                    while rest:
                        rest = rest[log.write(rest) :]
                except OSError:
                    log.truncate(end)  # none of them rather than some: they may come again
                    raise
        except OSError as error:
            raise Unwritable(f"cannot write {self.folder / 'events.jsonl'}: {error.strerror or error}") from None

    def events(self) -> Iterator[dict[str, Any]]:
        """The events so far, oldest first. Lines cut off by a kill, and lines that are no events, are skipped."""
        yield from self.events_from(0)[0]

    def last_start(self) -> list[dict[str, Any]]:
        """The events since the last start, or all where none is logged. Earlier ones are not read."""
        end = len(data := self._log(0) or b"")
        while (found := data.rfind(STARTED, 0, end)) >= 0:
            events = _events(data[data.rfind(b"\n", 0, found) + 1 :])
            if events and events[0]["event"] == "started":
                return events
            end = found  # that line is torn or damaged
        return _events(data)

    def events_from(self, position: int) -> tuple[list[dict[str, Any]], int]:
        """The events from this byte of the log on, and the byte to continue from; an unfinished line is left there."""
        data = self._log(position)
        return ([], 0) if data is None else (_events(data), position + len(data))

    def _log(self, position: int) -> bytes | None:
        """The whole lines of the log from this byte on; None where there is no log."""
        try:
            with open(self.folder / "events.jsonl", "rb") as log:
                log.seek(position)
                data = log.read()
        except FileNotFoundError:
            return None
        return data[: data.rfind(b"\n") + 1]

    def _plan(self) -> Any:
        return self._read("plan.json", shapes.plan)

    def _read(self, name: str, checked: Callable[[Any], None]) -> Any:
        path = self.folder / name
        try:
            found = sealed.unseal(path.read_bytes())
            checked(found)
        except (OSError, ValueError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or error
            raise StoreError(
                f"cannot read {path}: {reason}; put the file back from a copy, or move its folder away and start the "
                "run anew, which finds its results as they are"
            ) from None
        return found


def _events(lines: bytes) -> list[dict[str, Any]]:
    found = []
    for line in lines.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line.decode(errors="replace"))
            if shapes.is_event(event):
                found.append(event)
    return found


def now() -> str:
    """The time, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
