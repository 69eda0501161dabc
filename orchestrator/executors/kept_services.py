"""The services of a job in a run: its output, metrics and state are kept in the store (`store/job_files.py`)."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.executors.printed import Printed
from orchestrator.run_folder.advances import AdvanceWriter
from orchestrator.run_folder.job_metrics import MetricsWriter, checked_metrics
from orchestrator.spec.options import parse_duration
from orchestrator.store import Store, job_files, local_path
from orchestrator.store.atomic_write import writing
from orchestrator.store.entry import JOB_STATES, OUTPUTS, CorruptState, seal_state, unseal_state
from orchestrator.store.provenance import now, process
from tasks.worker.job_services import JobServices

STATE_EVERY = "ENGRAM_STATE_EVERY"  # variable: the interval between two copies of a state to a bucket
STATE_EVERY_DEFAULT = "10m"
LOCK_SECONDS = 30.0  # to wait for the program of an earlier attempt, which ends after its worker has died


class KeptServices(JobServices):
    """The services of one attempt at a job. `close` must be called when it has ended.

    Set `is_stored` before that if the result is stored: the state is then removed.
    """

    def __init__(self, key: str, gpus: int, cpus: int, store: Store, printed: Printed, advances: AdvanceWriter) -> None:
        super().__init__(key, gpus, cpus)
        self.is_stored = False
        self._store = store
        self._printed = printed
        self._advances = advances
        self._output: Path | None = None
        self._earlier_files: set[str] = set()  # of earlier attempts in a bucket
        self._metrics: MetricsWriter | None = None
        self._state: LocalState | RemoteState | None = None

    @cached_property
    def output(self) -> Path:
        folder = self._output_folder
        with writing(folder):
            job_files.begin_attempt(folder, f"--- next attempt, {now()} by {process()}")
            self._printed.start_copy(folder)
        return folder

    @cached_property
    def state(self) -> Path:
        if self._root is not None:
            self._state = LocalState(self._root / JOB_STATES / self.key)
        else:
            self._state = RemoteState(self._store, self.key)
        return self._state.folder

    @cached_property
    def _root(self) -> Path | None:
        return local_path(self._store.location)

    @property
    def inherited(self) -> tuple[int, ...]:
        return () if self._state is None else self._state.inherited

    @property
    def is_stopping(self) -> bool:
        return self._advances.is_stop_requested()

    def read_file(self, name: str) -> bytes:
        return self._store.read_file(name)

    def save_state(self) -> None:
        if self._state is not None:
            self._state.save()

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        logged = checked_metrics(metrics, step)
        if self._metrics is None:
            with writing(self._output_folder):
                self._metrics = MetricsWriter(self._output_folder / job_files.METRICS)
            self._advances.show_metrics(self.key)
        self._metrics.add(logged)

    @property
    def notes(self) -> dict[str, Any]:
        """The latest metrics and their step, for the job's record."""
        if self._metrics is None or self._metrics.latest is None:
            return {}
        latest = self._metrics.latest
        numbers = {}
        for name, value in latest.metrics.items():
            numbers[name] = value if math.isfinite(value) else None
        return {"metrics": {"step": latest.step, **numbers}}

    def keep_output(self) -> None:
        """Keep the output and the metrics. Called before the result is stored."""
        self._printed.stop_copy()
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
            self._advances.show_metrics("")
        folder = self._output
        if folder is None:
            return
        self._output = None
        with suppress(StoreError, OSError):  # the result matters more
            for name in job_files.OUTPUT_FILES:
                if name != job_files.METRICS:
                    job_files.shorten(folder / name)
            if self._root is None:
                self._upload_output(folder)
                shutil.rmtree(folder, ignore_errors=True)
            else:
                _remove_empty(folder)

    def close(self) -> None:
        """Keep the output, and release or remove the state."""
        self.keep_output()
        if self._state is not None:
            self._state.close(self.is_stored)
            self._state = None

    @property
    def _output_folder(self) -> Path:
        if self._output is None:
            if self._root is not None:
                self._output = self._store.folder(OUTPUTS, self.key)
            else:
                self._output = Path(tempfile.mkdtemp(prefix="engram-output-"))
                self._download_output(self._output)
        return self._output

    def _upload_output(self, folder: Path) -> None:
        for name in job_files.OUTPUT_FILES:
            path = folder / name
            if path.exists() and path.stat().st_size:
                self._store.replace_file(job_files.output_name(self.key, name), path.read_bytes())
            elif name in self._earlier_files:
                self._store.remove(job_files.output_name(self.key, name))

    def _download_output(self, folder: Path) -> None:
        """Fetch the output of earlier attempts."""
        for name in job_files.OUTPUT_FILES:
            if data := job_files.read_output(self._store, self.key, name):
                (folder / name).write_bytes(data)
                self._earlier_files.add(name)


class LocalState:
    """The state of a job in a folder of the store, locked as long as this process or the job's program lives.

    If the program of another attempt does not end, this attempt gets a temporary folder instead: two programs must not
    write to the same files.
    """

    def __init__(self, location: Path) -> None:
        self._location = location
        self._lock = job_files.lock_state(location, LOCK_SECONDS)
        if self._lock is None:
            self.folder = Path(tempfile.mkdtemp(prefix="engram-state-"))
            self.inherited: tuple[int, ...] = ()
            return
        self.folder = location / job_files.FILES
        self.inherited = (self._lock,)
        with writing(self.folder):
            self.folder.mkdir(exist_ok=True)

    def save(self) -> None:
        """Do nothing, because other machines see the folder."""

    def close(self, is_stored: bool) -> None:
        if self._lock is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        if is_stored or job_files.is_empty(self.folder):
            shutil.rmtree(self._location, ignore_errors=True)
        os.close(self._lock)


class RemoteState:
    """The state of a job in a temporary folder, which is copied to a bucket as one archive."""

    inherited: tuple[int, ...] = ()

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key
        self._interval = parse_duration(os.environ.get(STATE_EVERY) or STATE_EVERY_DEFAULT)
        self.folder = Path(tempfile.mkdtemp(prefix="engram-state-"))
        self._saved = time.monotonic()
        self._restore()

    def save(self, now: bool = False) -> None:
        """Copy the folder to the bucket if the interval has passed. An error is ignored: the next copy may succeed."""
        if not now and time.monotonic() - self._saved < self._interval:
            return
        self._saved = time.monotonic()
        if not job_files.is_empty(self.folder):
            with suppress(StoreError, OSError):
                parts = seal_state(self._key, job_files.archive_folder(self.folder))
                self._store.replace_file(job_files.archive_name(self._key), b"".join(parts))

    def close(self, is_stored: bool) -> None:
        if is_stored:
            with suppress(StoreError, OSError):
                job_files.remove_job_state(self._store, self._key)
        else:
            self.save(now=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _restore(self) -> None:
        """Extract the archive of an earlier attempt. A damaged one counts as missing."""
        with suppress(StoreError, OSError, CorruptState):
            file = self._store.read_file(job_files.archive_name(self._key))
            job_files.extract_archive(unseal_state(self._key, memoryview(file)), self.folder)


def _remove_empty(folder: Path) -> None:
    """Remove the empty files in an output folder, and the folder if nothing is left."""
    for name in job_files.OUTPUT_FILES:
        path = folder / name
        if path.exists() and not path.stat().st_size:
            path.unlink()
    with suppress(OSError):
        folder.rmdir()
