"""Deliver runs to MLflow from the driver's side. A child process does the work, and jobs never wait for it.

Only the end of a run waits for the child, for a limited time. If parts remain undelivered, a message says so, and the
next `engram resume` of the run delivers them.
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from orchestrator.inspection import search_results
from orchestrator.inspection.disclosure import Disclosure
from orchestrator.run_folder import notes
from orchestrator.run_folder.journal import Journal
from orchestrator.store import DEFAULT_STORE, Store
from orchestrator.tracking import artifacts, database
from orchestrator.tracking.facts import is_end, is_news
from orchestrator.tracking.tracking_store import EXPERIMENT, FOLDER, Target, Untracked, default_uri

ROOT = Path(__file__).resolve().parents[1]
# Engram's packages take precedence over others of the same name, and do not shadow any library.
BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import orchestrator, tasks; del sys.path[0]; "
    "from orchestrator.tracking.uploader import main; main()"
)
LATER = 30.0  # seconds of a run after which the child starts; shorter runs are delivered when they end
STARTING = 60.0  # seconds for the child to start, which loads MLflow and may create a database
SILENT = {True: 20.0, False: 60.0}  # final wait for a message in seconds, for remote and local tracking stores


class Delivery:
    """Delivers the runs from one start of a driver, and their sweep, to their tracking store."""

    def __init__(self, target: Target, store: Store, runs: Sequence[str], sweep: str | None) -> None:
        self.target = target
        self.store = store
        self._order = {
            "store": store.location,
            "uri": target.uri,
            "experiment": target.experiment,
            "jobs": target.jobs,
            "runs": list(runs),
            "sweep": sweep,
            "follow": True,  # whether the runs still have jobs
            "path": [os.path.abspath(path) for path in sys.path],  # needed to import audits from other packages
        }
        self._journals = [
            Disclosure().journal(store.folder("runs", name)) for name in (*runs, *([sweep] if sweep else []))
        ]
        self._name = sweep or runs[0]
        self._child: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._lock = threading.Lock()  # the timer must not start a child that `close` does not see
        self._timer: threading.Timer | None = None
        self._is_closed = False

    def begin(self) -> None:
        """Start the delivery of runs whose jobs leave a core idle, so that MLflow is loaded when they end."""
        self._begin()

    def begin_later(self) -> None:
        """Start the delivery in a while, unless the run ends first, because loading MLflow delays the jobs."""
        self._timer = threading.Timer(LATER, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def prepare(self) -> None:
        """Start the delivery of runs whose jobs have ended, so that MLflow is loaded by the time of `finish`."""
        self._order["follow"] = False
        self._begin()

    def _begin(self) -> None:
        """Start the child unless it is running. If it cannot be started, `finish` reports it."""
        with self._lock:
            if self._child is None and not self._is_closed:
                self._start_child()

    def _start_child(self) -> None:
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT, str(ROOT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=self.store.folder(FOLDER),  # MLflow resolves its defaults relative to the working directory
                start_new_session=True,  # Ctrl-C in the terminal reaches the driver, which passes it on
            )
        except OSError:
            return
        threading.Thread(target=self._listen, args=(self._child,), daemon=True).start()
        self._send(json.dumps(self._order))

    def finish(self, impatient: Callable[[], bool]) -> list[str]:
        """Wait until everything is delivered and return the lines to show to the user.

        Must be called once the folders are complete. Starts nothing if everything was delivered before. `impatient()`
        returns true when there is no time left.
        """
        if all(is_delivered(journal, self.store, self.target) for journal in self._journals):
            self.close()
            return []
        self.prepare()
        self._send("end")
        answer = self._answer(impatient)
        self.close()
        lines = []
        if answer.get("notice"):
            lines = [answer["notice"]]
        if answer["problem"]:
            lines.append(f"not fully tracked: {answer['problem']}; `{self._again()}` delivers the rest")
        return lines

    def address(self, run: str) -> str | None:
        """Return the address to show for the tracked run, or None if it is not in this tracking store."""
        last = notes.read_receipt(self.store.folder("runs", run))
        if last and last.uri == self.target.public_uri:
            return last.address
        return None

    def _again(self) -> str:
        """Return the command that delivers the rest to the same tracking store."""
        words = ["engram", "resume", self._name]
        if self.store.location != os.path.abspath(os.environ.get("ENGRAM_STORE") or DEFAULT_STORE):
            words += ["--store", self.store.location]
        if self.target.uri != os.environ.get("MLFLOW_TRACKING_URI") and not self._is_default():
            words += ["--mlflow", self.target.public_uri]
        if self.target.experiment not in (os.environ.get("MLFLOW_EXPERIMENT_NAME"), EXPERIMENT):
            words += ["--experiment", self.target.experiment]
        return shlex.join(words)

    def _is_default(self) -> bool:
        """Return whether the tracking store is the default one inside the Engram store."""
        with suppress(Untracked):  # a bucket has no default tracking store
            return self.target.uri == default_uri(self.store)
        return False

    def close(self) -> None:
        """Close the pipe to the child. The child then exits and marks the run as interrupted unless it has finished."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._is_closed = True
            child = self._child
            self._child = None
        if child is None:
            return
        assert child.stdin is not None
        with suppress(OSError):
            child.stdin.close()
        try:
            child.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            threading.Thread(target=child.wait, daemon=True).start()

    def _send(self, line: str) -> None:
        if self._child is not None and self._child.stdin is not None:
            with suppress(OSError):  # the child has died, which shows as a missing answer
                self._child.stdin.write(f"{line}\n")
                self._child.stdin.flush()

    def _listen(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _answer(self, impatient: Callable[[], bool]) -> dict[str, str]:
        """Return the last message from the child: its remaining `problem` and its `notice`."""
        if self._child is None:
            return {"problem": "its process could not be started"}
        deadline = time.monotonic() + STARTING
        while time.monotonic() < deadline:
            if impatient():
                return {"problem": "the time was over"}
            try:
                line = self._answers.get(timeout=0.2)
            except queue.Empty:
                continue
            if line is None:
                return {"problem": "the delivery process has died"}
            answer: dict[str, str] = json.loads(line)
            if "problem" in answer:
                return answer
            deadline = time.monotonic() + SILENT[self.target.remote]
        return {"problem": f"{self.target.public_uri} does not answer"}


def addresses(delivery: Delivery | None, runs: Sequence[str]) -> dict[str, str]:
    """Return the addresses of the tracked runs among these."""
    urls = {}
    if delivery:
        urls = {run: delivery.address(run) for run in runs}
    return {run: address for run, address in urls.items() if address}


def is_delivered(journal: Journal, store: Store, target: Target) -> bool:
    """Return whether the tracking store has everything in the run's folder, with no later events or changed files."""
    last = notes.read_receipt(journal.folder)
    if last is None or not last.state or (target.public_uri, target.experiment) != (last.uri, last.experiment):
        return False
    if target.jobs and not last.jobs:
        return False
    if target.database is not None and not database.holds(target.database, last.run_id):
        return False
    events, position = journal.events_from(last.position)
    ends = [event["event"] for event in events if is_end(event)]
    if any(map(is_news, events)) or (ends and ends[-1] != last.state):
        return False
    if last.fingerprint != artifacts.fingerprint(journal, store, search_results.read_if_search(journal)):
        return False
    with suppress(OSError):
        notes.write_receipt(journal.folder, replace(last, position=position))  # the next call skips these events
    return True
