"""The uploader: a separate process that updates MLflow from run folders, during the runs and afterwards.

Loading MLflow takes seconds, a server may hang, and the user's program may use MLflow itself. The uploader is therefore
not part of the run's driver, which starts it (`delivery.py`).

It reads its order, one line of JSON, from stdin. It then receives `end` when the run folders are complete, or the end
of the stream when the driver has died. It writes one line to stdout after each run in a sync, and finally its answer.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any

from orchestrator.deferred_pandas import defer_pandas
from orchestrator.errors import EngramError
from orchestrator.inspection.disclosure import Disclosure
from orchestrator.run_folder import notes
from orchestrator.run_folder.journal import Journal
from orchestrator.spec.audits import find_once
from orchestrator.store import open_store
from orchestrator.store.atomic_write import file_lock
from orchestrator.tracking import database
from orchestrator.tracking.server import Server, Undeliverable, load_without_pandas
from orchestrator.tracking.tracked_run import Entry
from orchestrator.tracking.tracking_store import FOLDER, Target
from orchestrator.tracking.tracking_store import LOCK as ALL

SECONDS = 5.0  # seconds between syncs during a run
LAST_SECONDS = 8.0  # seconds that the uploader may continue after its driver has died
LOCK = "mlflow.lock"  # in a run's folder, so that only one uploader at a time delivers the run


class DriverMessages:
    """Messages from the driver. `ended` is set when the run's folder is complete, `dead` when the driver has died."""

    def __init__(self) -> None:
        self.ended = self.dead = False
        self._message = threading.Event()
        self._parent = os.getppid()
        threading.Thread(target=self._listen, daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Wait for a message, for at most this many seconds."""
        if self._message.wait(seconds) or os.getppid() == self._parent:
            return
        self._die()

    def _listen(self) -> None:
        if sys.stdin.readline().strip() == "end":
            self.ended = True
            self._message.set()
            sys.stdin.readline()
        self._die()

    def _die(self) -> None:
        self.dead = True
        self._message.set()
        timer = threading.Timer(LAST_SECONDS, os._exit, (1,))
        timer.daemon = True
        timer.start()


class Uploader:
    """The runs from one start of a driver, preceded by their sweep if there is one."""

    def __init__(self, order: Mapping[str, Any], used: bool = False) -> None:
        self.store = open_store(order["store"], create=False)
        self.target = Target(order["uri"], order["experiment"], order.get("jobs", False))
        cells = [Entry(self._journal(name), self.store) for name in order["runs"]]
        self.sweep = Entry(self._journal(order["sweep"]), self.store, cells) if order["sweep"] else None
        self.entries = [*([self.sweep] if self.sweep else []), *cells]
        self.notice = ""  # a line about the tracking store for the user
        self._used = used  # whether MLflow has opened the tracking store in this process
        self._server: Server | None = None

    def sync(
        self, step: Callable[[Entry], None], settled: bool, acknowledge: Callable[[], None] = lambda: None
    ) -> None:
        """Read the logs and apply `step` to each run. Reconnect after an error.

        `settled` is true once the logs are complete. `acknowledge` is called after each run, so that a search with many
        trials is not mistaken for a hanging server.
        """
        with find_once():
            self._sync(step, settled, acknowledge)

    def _sync(self, step: Callable[[Entry], None], settled: bool, acknowledge: Callable[[], None]) -> None:
        try:
            for entry in self.entries:
                entry.read(settled)
            if self._server is None:
                used = self._used
                self._used = True
                server = Server(self.target, self.store, used)
                self.notice = server.set_aside or self.notice
                for entry in self.entries:
                    entry.open(server, self.sweep if entry is not self.sweep else None)
                    assert entry.receipt is not None
                    notes.write_receipt(entry.journal.folder, entry.receipt)
                    acknowledge()
                self._server = server
            for entry in reversed(self.entries):  # a sweep ends after its cells
                step(entry)
                acknowledge()
        except Exception:
            self._server = None
            raise

    def lock_runs(self, wait: bool = True) -> ExitStack:
        """Prevent other processes, such as the uploader of a killed driver, from delivering these runs.

        Raises BlockingIOError if another process has the lock and `wait` is False.
        """
        with ExitStack() as stack:
            for folder in sorted(entry.journal.folder for entry in self.entries):
                stack.enter_context(file_lock(folder / LOCK, wait))
            return stack.pop_all()

    def _journal(self, name: str) -> Journal:
        return Disclosure().journal(self.store.folder("runs", name))


def follow(uploader: Uploader, driver: DriverMessages, acknowledge: Callable[[], None], has_jobs: bool = True) -> str:
    """Sync until the run has ended or its driver has died. Returns the problem as one line, or an empty string.

    If `has_jobs` is false, all jobs have ended, and the runs are only opened until their pages are drawn.
    """

    def step(entry: Entry) -> None:
        if has_jobs:
            entry.progress("running")

    with uploader.lock_runs():
        while not (driver.ended or driver.dead):
            with suppress(Exception):  # retried, and reported at the end
                uploader.sync(step, False, acknowledge)
            driver.wait(SECONDS)
        problem = ""
        for _ in range(2):  # an idle connection may only now turn out to be dead
            try:
                uploader.sync(lambda entry: entry.finish(files=not driver.dead), True, acknowledge)
                _settle(uploader, driver, acknowledge)
                return ""
            except Exception as error:
                problem = reason(error, uploader.target)
                if "does not answer" in problem or isinstance(error, Undeliverable):
                    break
        return problem


def _settle(uploader: Uploader, driver: DriverMessages, acknowledge: Callable[[], None]) -> None:
    """Deliver the runs of a database that was set aside. Runs that another process is delivering remain recorded."""
    path = uploader.target.database
    waiting = []
    if path:
        waiting = database.owed_runs(path)
    if path is None or not waiting:
        return
    delivered_runs = {entry.journal.run for entry in uploader.entries}
    journals = {name: Journal(uploader.store.folder("runs", name)) for name in waiting}
    sweeps = [name for name, journal in journals.items() if _cells(journal)]
    for name in [*sweeps, *waiting]:  # the cells of a sweep are delivered with it
        if driver.dead:
            break
        if name in delivered_runs:
            continue
        if not journals[name].exists:
            delivered_runs.add(name)
            continue
        cells = _cells(journals[name])
        earlier_receipt = notes.read_receipt(journals[name].folder)
        order = {
            "store": uploader.store.location,
            "uri": uploader.target.uri,
            "experiment": earlier_receipt.experiment if earlier_receipt else uploader.target.experiment,
            "jobs": earlier_receipt is not None and earlier_receipt.jobs,
            "runs": cells or [name],
            "sweep": name if cells else None,
        }
        with suppress(Exception):  # on failure the run remains recorded
            uploader_of_run = Uploader(order, used=True)
            with uploader_of_run.lock_runs(wait=False):
                uploader_of_run.sync(lambda entry: entry.finish(files=True), settled=True)
            delivered_runs |= {name, *cells}
        acknowledge()
    with file_lock(uploader.store.folder(FOLDER) / ALL):
        database.record_owed_runs(path, [name for name in database.owed_runs(path) if name not in delivered_runs])


def _cells(journal: Journal) -> list[str]:
    """Return the runs of a sweep. Returns an empty list for a single run, or if the journal cannot be read."""
    with suppress(EngramError, OSError):
        return list(journal.about().get("cells", ()))
    return []


def reason(error: BaseException, target: Target) -> str:
    """Return the cause of an MLflow failure as one line."""
    line = " ".join(str(error).split())
    if isinstance(error, EngramError):
        return line
    uri = target.public_uri
    for words, message in (
        ("Connection refused", f"nothing answers at {uri}"),
        ("timed out", f"{uri} does not answer"),
        ("resolve", f"{uri} cannot be found"),
        ("too many 50", f"{uri} answers only with errors"),
    ):
        if words in line:
            return message
    return f"{uri}: {type(error).__name__}: {line[:300]}".replace(target.uri, uri)


def quiet() -> None:
    """Turn off MLflow's own messages, telemetry and retries."""
    os.environ |= {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the next sync retries
        "GIT_PYTHON_REFRESH": "quiet",
    }
    logging.disable(logging.CRITICAL)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # exits on the driver's message, or when the driver is gone
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # so that library output is not mistaken for an answer
    order = json.loads(sys.stdin.readline())
    driver = DriverMessages()
    if order["follow"]:
        with suppress(OSError):
            os.nice(5)  # the jobs come first
    quiet()
    sys.path += [path for path in order["path"] if path not in sys.path]
    os.environ["MLFLOW_TRACKING_URI"] = order["uri"]
    defer_pandas()
    load_without_pandas()

    def acknowledge() -> None:
        with suppress(OSError):
            answers.write("{}\n")

    uploader = Uploader(order)
    problem = follow(uploader, driver, acknowledge, order["follow"])
    with suppress(OSError):
        answers.write(json.dumps({"problem": problem, "notice": uploader.notice}) + "\n")
    os._exit(0)  # library threads may hang on unsent data


if __name__ == "__main__":
    main()
