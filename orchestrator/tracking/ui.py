"""Serve MLflow's pages for the tracking store of a local Engram store, reachable from this machine only.

MLflow runs as a separate process and is never imported here. The link opens Engram's run list, which is not MLflow's
default page.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from orchestrator.errors import EngramError
from orchestrator.run_folder import notes
from orchestrator.store import Store
from orchestrator.store.atomic_write import file_lock
from orchestrator.tracking import database, tracking_store
from orchestrator.tracking.tracking_store import ARTIFACTS, FOLDER, LOCK, VIEW, Target, rehome, run_list
from tasks.worker.process_guard import Guard

HOST = "127.0.0.1"
PORTS = 100  # number of consecutive ports to try
ATTEMPTS = 3  # attempts to find a port, if other processes take free ones at the same time
STARTING = 120.0  # seconds until the server answers; MLflow loads slowly on a busy machine
ENDING = 5.0  # seconds to exit after SIGTERM
SECONDS = 5.0  # timeout of a request, in seconds
SETTINGS = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # the job processes are not needed
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}


def link(url: str, experiment: str) -> str:
    """Return the URL of the experiment's run list on this server, with answers as columns if available.

    Returns the list of all experiments if the server does not have this one.
    """
    request = f"{url.rstrip('/')}/api/2.0/mlflow/experiments/get-by-name?experiment_name={quote(experiment)}"
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            experiment_json = json.load(answer)["experiment"]
            has_view = any(tag["key"] == tracking_store.VIEW_TAG for tag in experiment_json.get("tags", ()))
            return run_list(url, experiment_json["experiment_id"], has_view)
    except (OSError, ValueError, KeyError, TypeError):
        return f"{url.rstrip('/')}/#/experiments{VIEW}"


def run_link(folder: Path, url: str | None) -> str | None:
    """Return the MLflow page of the run in this folder, on the server that has it or else on Engram's server at `url`.

    Returns None for a run that is not tracked, or whose tracking store is a file without a running server.
    """
    receipt = notes.read_receipt(folder)
    if receipt is None or receipt.address.startswith("http"):
        return receipt.address if receipt else None
    if url is None:
        return None
    return Target(url).address(receipt.experiment_id, receipt.run_id)


def check(store: Store, target: Target) -> None:
    """Raise EngramError if there is nothing to show yet, or if the database is unusable."""
    path = target.database
    if path is not None:
        if not path.exists():
            raise EngramError(f"{path} has no runs yet; run an audit first, or give another tracking store by --mlflow")
        if defect := database.problem(path):
            raise EngramError(f"MLflow cannot use {path}: {defect}; `engram resume` of one of its runs recreates it")
    # A process that holds the lock has already done this.
    with suppress(BlockingIOError), file_lock(store.folder(FOLDER) / LOCK, wait=False):
        rehome(store)


def log(store: Store) -> Path:
    """Return the path of the server's log file."""
    return store.folder(FOLDER) / "ui.log"


def free_port(first: int) -> int:
    """Return the first free port, starting with `first`."""
    for port in range(first, first + PORTS):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError, OverflowError):
                probe.bind((HOST, port))
                return port
    raise EngramError(f"ports {first} to {first + PORTS - 1} are all in use; give another one by --port")


@contextmanager
def serving(store: Store, target: Target, first: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start MLflow's server on the tracking store. Yields its process and its port, the first free one from `first`.

    The server stops when the context ends or this process is killed. If another process takes the port while the server
    is starting, it is started again on the next free port.
    """
    guard = Guard()
    server: subprocess.Popen[bytes] | None = None
    try:
        for attempt in range(1, ATTEMPTS + 1):
            port = free_port(first)
            server = _start(store, target, port, guard)
            if _answers(server, port, log(store)):
                break
            if attempt == ATTEMPTS or free_port(port) == port:  # the port was not the reason why it ended
                raise EngramError(f"MLflow's server ended at once; its output is in {log(store)}")
        assert server is not None
        yield server, port
    finally:
        if server is not None:
            _end(server)
        guard.close()


def _start(store: Store, target: Target, port: int, guard: Guard) -> subprocess.Popen[bytes]:
    folder = store.folder(FOLDER)
    command = [sys.executable, "-P", "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
    # With gunicorn there is no endpoint for the assistant, which would run commands on this machine. It also starts
    # faster.
    command += ["--gunicorn-opts", "--threads 4"]
    command += ["--backend-store-uri", target.uri, "--default-artifact-root", (folder / ARTIFACTS).as_uri()]
    with open(log(store), "wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,  # MLflow resolves its defaults relative to the working directory
            env={**os.environ, **SETTINGS, **guard.variables},
            start_new_session=True,  # Ctrl-C in the terminal reaches this process, which stops the server
        )


def _answers(server: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    """Wait until the server answers. Returns False if it ended instead. Raises EngramError on timeout."""
    deadline = time.monotonic() + STARTING
    while time.monotonic() < deadline:
        if server.poll() is not None:
            return False
        with suppress(OSError), urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=2):
            return True
        time.sleep(0.1)
    raise EngramError(f"MLflow's server does not answer; its output is in {log}")


def _end(server: subprocess.Popen[bytes]) -> None:
    """Stop the server. Its children exit with it or are stopped by the guard."""
    with suppress(OSError):
        server.terminate()
    try:
        server.wait(ENDING)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
