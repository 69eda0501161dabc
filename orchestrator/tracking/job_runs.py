"""The trainings of a run as nested MLflow runs, with the metrics that they log by step.

As in `tracked_run`, each update reads what MLflow has and adds what is missing, so it can be interrupted anywhere and
repeated by any process without creating duplicates. Trainings that log no metrics have no MLflow run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.inspection.logs import seeds_in
from orchestrator.quantities import encodable
from orchestrator.run_folder.job_metrics import LoggedMetrics, read_metrics
from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store
from orchestrator.store.job_files import keys_with_metrics
from orchestrator.tracking import facts
from orchestrator.tracking.server import Server

METRICS = 800  # maximum number per request
PAGE = 1000  # runs per page of a search
JOB = "engram.job"  # tag: the key of the job
LOGGED = "engram.logged"  # tag: identifies the metrics that MLflow has
END_STATUS = {"stored": "FINISHED", "failed": "FAILED", "": "KILLED"}


class JobRuns:
    """The nested runs of one MLflow run."""

    def __init__(self, journal: Journal, store: Store, server: Server, parent_id: str) -> None:
        self._journal = journal
        self._store = store
        self._server = server
        self._parent_id = parent_id
        self._tasks = journal.tasks()
        self._runs = self._find_runs()
        self._delivered: dict[str, tuple[str, str]] = {}  # metrics and status that MLflow has, by key

    def update(self, is_running: bool) -> None:
        """Add what MLflow lacks. `is_running`: whether the run has a driver, so that jobs may still be running."""
        keys = sorted(keys_with_metrics(self._store) & self._tasks.keys())
        failed_keys = {event["key"] for event in self._journal.last_start(("failed",)) if "key" in event}
        for key in keys:
            if self._delivered.get(key, ("", ""))[1] == "FINISHED":
                continue  # its metrics are complete
            if key in self._store:
                state = "stored"
            elif key in failed_keys:
                state = "failed"
            else:
                state = ""
            status = "RUNNING" if is_running and not state else END_STATUS[state]
            self._deliver(key, status, read_metrics(self._store, key))

    def _find_runs(self) -> dict[str, Any]:
        """Return the existing runs by key. If a server answered too late, a job has several, and all but one go."""
        query = f"tags.`mlflow.parentRunId` = '{self._parent_id}' and tags.`engram.kind` = 'job'"
        runs: dict[str, Any] = {}
        token = None
        while True:
            page = self._server.client.search_runs(
                [self._server.experiment], query, max_results=PAGE, order_by=["start_time"], page_token=token
            )
            for run in page:
                if run.data.tags[JOB] in runs:
                    self._server.client.delete_run(run.info.run_id)
                else:
                    runs[run.data.tags[JOB]] = run
            token = page.token
            if not token:
                return runs

    def _deliver(self, key: str, status: str, points: list[LoggedMetrics]) -> None:
        if not points:
            return
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = self._create(key, points[0])
        version = f"{len(points)} {points[-1].time}"
        delivered = self._delivered.get(key, (run.data.tags.get(LOGGED, ""), run.info.status))
        run_id = run.info.run_id
        if delivered[0] != version:
            self._log_points(run_id, points, version)
        if delivered[1] != status:
            if status == "RUNNING":
                self._server.client.update_run(run_id, status=status)
            else:
                self._log_seeds(key, run)
                self._server.client.set_terminated(run_id, status, int(points[-1].time * 1000))
        self._delivered[key] = (version, status)

    def _create(self, key: str, first: LoggedMetrics) -> Any:
        tags = {
            "mlflow.parentRunId": self._parent_id,
            "engram.kind": "job",
            "engram.task": encodable(self._tasks[key]),
            JOB: key,
        }
        name = f"{self._tasks[key]} {key[:12]}"
        return self._server.client.create_run(
            self._server.experiment, int(first.time * 1000), tags=tags, run_name=encodable(name)
        )

    def _log_points(self, run_id: str, points: list[LoggedMetrics], version: str) -> None:
        """Log the values that MLflow lacks. If a training repeats a step, the value that was logged first remains."""
        from mlflow.entities import Metric, RunTag

        values: dict[tuple[str, int], Any] = {}
        for point in points:
            for name, value in point.metrics.items():
                metric = Metric(facts.safe_name(name), value, int(point.time * 1000), point.step)
                values[metric.key, metric.step] = metric
        for name in {name for name, _ in values}:
            for logged in self._server.client.get_metric_history(run_id, name):
                values.pop((name, logged.step), None)
        metrics = list(values.values())
        for start in range(0, len(metrics), METRICS):
            self._server.client.log_batch(run_id, metrics=metrics[start : start + METRICS])
        self._server.client.log_batch(run_id, tags=[RunTag(LOGGED, version)])

    def _log_seeds(self, key: str, run: Any) -> None:
        """Log the seeds in the configuration of a stored job as parameters."""
        from mlflow.entities import Param

        seeds: Mapping[str, int] = {}
        with suppress(StoreError):
            seeds = seeds_in(self._store.record(key, check=False).get("config"))
        params = []
        for path, seed in seeds.items():
            if facts.safe_name(path) not in run.data.params:
                params.append(Param(facts.safe_name(path), str(seed)))
        if params:
            self._server.client.log_batch(run.info.run_id, params=params)
