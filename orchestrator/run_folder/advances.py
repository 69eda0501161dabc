"""How far the trainings of running calls are: one small file per call, which its worker writes and displays read.

A further file asks the workers to end the programs of their jobs, because the run stops.

Results never depend on these files. A store that other machines cannot see has none.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.store import Store

FOLDER = "progress"
SECONDS = 1.0  # between two writes of a call, and between two looks for a request to stop
STOP = ".stop"


@dataclass(frozen=True)
class CallAdvance:
    """How far a call is: the number of networks that it has trained, where two half trained ones count as one."""

    kind: str  # of its jobs: their group, or their task
    networks: float
    seconds: float  # since the call began
    logging_key: str = ""  # of the running job, if it logs metrics


class AdvanceWriter:
    """Writes the file of a call, at most once per SECONDS. `key` is the key of its first job."""

    def __init__(self, store: Store, run: str, kind: str, key: str) -> None:
        self.stored = 0  # jobs of the call whose results are stored
        self._folder = folder_of(store, run) if run and key else None
        self._kind = kind
        self._key = key
        self._logging_key = ""
        self._begin_time = self._last_time = self._last_look = time.monotonic()
        self._is_stop_requested = False

    def is_stop_requested(self) -> bool:
        """Whether the run is being stopped (`request_stop`). The folder is read at most once per SECONDS."""
        now = time.monotonic()
        if self._folder is not None and now - self._last_look >= SECONDS:
            self._last_look = now
            self._is_stop_requested = (self._folder / STOP).exists()
        return self._is_stop_requested

    def write(self, networks: float) -> None:
        """Note how far the trainings in progress are. Errors are ignored, because only displays need the file."""
        if time.monotonic() - self._last_time >= SECONDS:
            self._write(networks)

    def show_metrics(self, key: str) -> None:
        """Note the running job that logs metrics, so that displays read them. Empty: it has ended."""
        self._logging_key = key
        self._write(0.0)

    def _write(self, networks: float) -> None:
        if self._folder is None:
            return
        self._last_time = now = time.monotonic()
        advance = CallAdvance(self._kind, self.stored + networks, now - self._begin_time, self._logging_key)
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            draft = self._folder / f".{self._key}"
            draft.write_text(json.dumps(asdict(advance)))
            draft.replace(self._folder / self._key)

    def close(self) -> None:
        """Remove the file, because the call has ended."""
        if self._folder is not None and self._last_time != self._begin_time:
            discard(self._folder, [self._key])


def folder_of(store: Store, run: str) -> Path | None:
    """Return the folder of a run's files, which may not exist. Returns None if workers may have another folder."""
    if store.mirror is not None:
        return None
    return store.folder("runs").parent / FOLDER / run


def request_stop(folder: Path | None) -> None:
    """Ask the running calls of a run to end the programs that they have started. The request ends with `clear`."""
    if folder is not None:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / STOP).touch()


def read_advances(folder: Path | None) -> list[CallAdvance]:
    """Return how far the running calls are. Files that cannot be read are left out."""
    advances: list[CallAdvance] = []
    if folder is None:
        return advances
    with suppress(OSError):
        for path in folder.glob("[!.]*"):
            with suppress(OSError, ValueError, TypeError):
                advances.append(CallAdvance(**json.loads(path.read_text())))
    return advances


def discard(folder: Path | None, keys: Iterable[str]) -> None:
    """Remove the files of calls that have ended."""
    if folder is None:
        return
    for key in keys:
        with suppress(OSError):
            (folder / key).unlink()


def clear(folder: Path | None) -> None:
    """Remove a run's folder, and the folder that contains it if it is empty."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            folder.parent.rmdir()
