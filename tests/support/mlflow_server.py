"""A real MLflow server for tests, and MLflow's own client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.waiting import HANGING

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def client(uri: str) -> Any:
    """MLflow's client on this tracking store."""
    os.environ |= QUIET
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def tracked(client: Any, experiment: str = "engram") -> list[Any]:
    """All runs of the experiment, including deleted ones, sorted by their names in their stores."""
    matching_experiment = client.get_experiment_by_name(experiment)
    runs = []
    if matching_experiment:
        runs = client.search_runs([matching_experiment.experiment_id], run_view_type=3)
    return sorted(runs, key=name_of)


def name_of(run: Any) -> str:
    """The run's name in its store. In MLflow's list it has another name, made from its settings."""
    return str(run.data.tags["engram.run"])


class MlflowServer:
    """A server whose processes form a group that can be suspended and killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/server.db"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env=os.environ | QUIET, start_new_session=True
            )
        deadline = time.monotonic() + HANGING
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=2):
                return
            assert self._process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self._process.wait()
