"""Deliver a run to MLflow from its folder.

Each step reads the run's data in MLflow and adds the missing parts. A step can therefore be interrupted anywhere and
repeated by any process without creating duplicates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from orchestrator.inspection import search_results
from orchestrator.inspection.search_results import SearchResults
from orchestrator.inspection.status import WORST
from orchestrator.quantities import encodable
from orchestrator.run_folder import notes
from orchestrator.run_folder.journal import COMPLETE, Journal, MergedLog
from orchestrator.run_folder.notes import Receipt
from orchestrator.run_folder.progress import seconds_of
from orchestrator.store import Store
from orchestrator.tracking import artifacts, facts, note, tracking_store
from orchestrator.tracking.facts import Point, ProgressLog
from orchestrator.tracking.job_runs import JobRuns
from orchestrator.tracking.server import SHOWN, Server, store_id

# maximum number of items per request, which may have 1,000 items in total
METRICS = 800
PARAMS = 100
POINTS = METRICS // 3  # points of the progress, of three metrics each, that fit into a request
# Any other state becomes KILLED.
STATUS = {"running": "RUNNING", "failed": "FAILED", **dict.fromkeys(COMPLETE, "FINISHED")}
NAME = "mlflow.runName"  # in MLflow's run list, where a user may edit it
# MLflow shows metrics that begin with `system/` separately from the results.
DONE = "system/jobs done"
FAILED = "system/jobs failed"
RATE = "system/models per minute"
T = TypeVar("T")


class Entry:
    """One run, sweep or search, and its state in MLflow.

    Data shared by all trials of a search are read once, together with its log: `search` contains its results, and
    `names` the names of its trials, or of the cells of a sweep, by run.
    """

    def __init__(self, journal: Journal, store: Store, cells: Sequence[Entry] = ()) -> None:
        self.journal = journal
        self.store = store
        self.cells = cells
        self.about = journal.about()
        logs = [cell.journal for cell in cells] or [journal]
        self.course = ProgressLog(MergedLog(logs, str(self.about.get("created", "")) if cells else ""))
        self.search: SearchResults | None = None
        self.names: Mapping[str, str] = {}
        self.receipt: Receipt | None = None
        self._server: Server | None = None
        self._job_runs: JobRuns | None = None
        self._parent: Entry | None = None
        self._step = -1  # the last step recorded in MLflow
        self._status = ""
        self._mlflow_run: Any = None  # as read when it was opened, until it is changed
        self._is_new = False  # whether the run has been created by `open`

    def read(self, settled: bool) -> None:
        self.course.read(settled)
        if self.cells:
            self.search = search_results.read_if_search(self.journal)
            self.names = note.cell_names(self.journal, self.search)

    @property
    def state(self) -> str:
        """How the last start ended, according to the log. For a search, whether it has ended."""
        if self.search is not None:
            if self.search.ended:
                return "finished"
            return "interrupted"
        if self.cells:
            return min((cell.state for cell in self.cells), key=WORST.index)
        return self.course.state or "interrupted"

    def open(self, server: Server, parent: Entry | None) -> None:
        """Find or create the run, and log its params, tags and inputs."""
        self._server = server
        self._status = ""
        self._parent = parent
        earlier_receipt = notes.read_receipt(self.journal.folder)
        tags = self._tags()
        if parent:
            tags |= {"mlflow.parentRunId": _id(parent)}
        name = self._name(parent)
        mlflow_run, self._is_new = server.run(self.journal.run, store_id(self.store), self._began(), tags, name)
        self._mlflow_run = mlflow_run
        run_id = str(mlflow_run.info.run_id)
        target = server.target
        identity = (target.public_uri, target.experiment, server.experiment, run_id)
        address = target.address(server.experiment, run_id)
        is_same_run = earlier_receipt and identity == (
            earlier_receipt.uri,
            earlier_receipt.experiment,
            earlier_receipt.experiment_id,
            earlier_receipt.run_id,
        )
        if earlier_receipt and is_same_run:
            self.receipt = earlier_receipt
        else:
            self.receipt = Receipt(*identity, address)
        self._step = max((metric.step for metric in self._history(DONE)), default=-1)
        params = {k: v for k, v in self._params().items() if k not in mlflow_run.data.params}
        tags |= self._name_tags(mlflow_run, name)
        self._log(self._first_effect(mlflow_run.data.metrics), params, _changed(mlflow_run.data.tags, tags))
        self._inputs(mlflow_run)
        if target.jobs and not self.cells:
            self._job_runs = JobRuns(self.journal, self.store, server, run_id)

    def progress(self, state: str) -> None:
        """Log the points missing from MLflow, and the state."""
        server, run_id = self._server_and_id()
        self._log_points()
        if self._job_runs is not None:
            self._job_runs.update(is_running=True)
        if state == "running" != self._status:
            server.client.update_run(run_id, status="RUNNING")
            self._mlflow_run = None
            self._log(tags=self._note(state))
            self._status = state

    def finish(self, files: bool) -> None:
        """Log the rest of a run that has ended: files, numbers, and finally its status."""
        server, run_id = self._server_and_id()
        state = self.state
        position = self.course.log.position
        fingerprint = artifacts.fingerprint(self.journal, self.store, self.search)
        if self._job_runs is not None:
            self._job_runs.update(is_running=False)
        if not files:
            self._end(state)
        mlflow_run = self._mlflow_run or server.client.get_run(run_id)
        tags = self._note(state) | facts.answer(self.journal, self.store, self.search)
        if files:
            tags |= self._files()
        self._log_points(keep=POINTS)
        points = self._new_points()
        metrics = [metric for point in points for metric in _metrics(point)]
        metrics += self._answer(mlflow_run.data.metrics)
        if state in COMPLETE:
            metrics += self._learning_curves()
        self._mlflow_run = None
        self._is_new = False
        self._log(metrics, tags=_changed(mlflow_run.data.tags, tags))
        if points:
            self._step = points[-1].step
        if files:
            self._end(state)
            assert self.receipt is not None
            self.receipt = replace(
                self.receipt,
                position=position,
                state=state,
                fingerprint=fingerprint,
                jobs=self.receipt.jobs or self._job_runs is not None,
            )
            notes.write_receipt(self.journal.folder, self.receipt)

    def _new_points(self) -> list[Point]:
        """Return the points of the progress that MLflow lacks."""
        return [point for point in self.course.points if point.step > self._step]

    def _log_points(self, keep: int = 0) -> None:
        """Log the points that MLflow lacks, unless there are at most `keep`. No request splits a point."""
        points = self._new_points()
        if len(points) <= keep:
            return
        for batch in _batches(points, POINTS):
            self._log([metric for point in batch for metric in _metrics(point)])
            self._step = batch[-1].step

    def _history(self, name: str) -> Sequence[Any]:
        """Return the values of a metric that MLflow has."""
        if self._is_new:
            return ()
        server, run_id = self._server_and_id()
        history: Sequence[Any] = server.client.get_metric_history(run_id, name)
        return history

    def _note(self, state: str) -> dict[str, str]:
        text = note.run_note(self.journal, self.store, state, self.search, self._comparison)
        return {"engram.state": state, "mlflow.note.content": text, **note.tags_of_accepted_code(self.journal)}

    def _comparison(self, runs: Sequence[str]) -> str:
        """Return the link that compares these cells in MLflow. Empty if fewer than two of them are tracked."""
        server, _ = self._server_and_id()
        run_ids = []
        for cell in self.cells:
            if cell.receipt is not None and cell.journal.run in runs:
                run_ids.append(cell.receipt.run_id)
        if len(run_ids) < 2:
            return ""
        return tracking_store.comparison(server.experiment, run_ids)

    def _end(self, state: str) -> None:
        server, run_id = self._server_and_id()
        if self.course.ended is None:
            time = None
        else:
            time = int(self.course.ended * 1000)
        server.client.set_terminated(run_id, STATUS.get(state, "KILLED"), time)
        self._status = state

    def _first_effect(self, logged_metrics: Mapping[str, float]) -> list[Any]:
        """Return the effect as NaN, because MLflow's comparison page opens on the metric that was logged first.

        Returns an empty list for a sweep, or if the effect is logged.
        """
        from mlflow.entities import Metric

        if self.cells or facts.EFFECT in logged_metrics:
            return []
        return [Metric(facts.EFFECT, math.nan, int(self._began() * 1000), 0)]

    def _answer(self, logged_metrics: Mapping[str, float]) -> list[Any]:
        """Return the numbers of the answer that MLflow lacks. Changed numbers have a higher step."""
        from mlflow.entities import Metric

        time = int((self.course.ended or self._began()) * 1000)
        fresh = []
        for name, value in (facts.metrics(self.journal, self.store, self.search) | self._objectives()).items():
            if logged_metrics.get(name) != value:
                history = self._history(name) if name in logged_metrics else ()
                history = [metric for metric in history if not math.isnan(metric.value)]
                fresh.append(Metric(name, value, time, 1 + max((metric.step for metric in history), default=-1)))
        if self.cells and self.search is None:
            fresh += self._effects_of_cells()
        return fresh

    def _effects_of_cells(self) -> list[Any]:
        """Return the effects of a sweep's cells that MLflow lacks, with the index of the cell as the step."""
        from mlflow.entities import Metric

        time = int((self.course.ended or self._began()) * 1000)
        by_cell = facts.cell_metrics(self.journal, self.store)
        fresh = []
        for name in facts.CELL_METRICS:
            logged = {metric.step: metric.value for metric in self._history(name)}
            for step, values in by_cell.items():
                if name in values and logged.get(step) != values[name]:
                    fresh.append(Metric(name, values[name], time, step))
        return fresh

    def _objectives(self) -> dict[str, float]:
        """Return the numbers by which a search compares its trials. Returns an empty dict for other runs."""
        if self._parent is None:
            search = None
        else:
            search = self._parent.search
        if search is None:
            return {}
        return facts.objectives(search, self.journal.run)

    def _learning_curves(self) -> list[Any]:
        """Return the epochs of the learning curves that MLflow lacks, with the epoch as the step."""
        from mlflow.entities import Metric

        time = int((self.course.ended or self._began()) * 1000)
        fresh = []
        for name, points in facts.learning_curves(self.journal, self.store).items():
            logged_epochs = {metric.step for metric in self._history(name)}
            for epoch, value in points:
                if epoch not in logged_epochs:
                    fresh.append(Metric(name, value, time, epoch))
        return fresh

    def _files(self) -> dict[str, str]:
        """Upload the changed files, and return the tag that lists the tables among them."""
        server, run_id = self._server_and_id()
        assert self.receipt is not None
        tables = []
        digests: dict[str, str] = {}
        with TemporaryDirectory(prefix=".upload-", dir=server.folder) as folder:
            for artifact in artifacts.run_artifacts(self.journal, self.store, self.search):
                if artifact.table:
                    tables.append({"path": artifact.path, "type": "table"})
                digest = artifact.digest
                if self.receipt.artifacts.get(artifact.path) != digest:
                    path = Path(folder) / artifact.path
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(artifact.data)
                    digests[artifact.path] = digest
            if digests:
                server.client.log_artifacts(run_id, folder)
        self.receipt = replace(self.receipt, artifacts={**self.receipt.artifacts, **digests})
        if tables:
            return {"mlflow.loggedArtifacts": json.dumps(tables)}
        return {}

    def _inputs(self, mlflow_run: Any) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        logged_data = set()
        for logged in mlflow_run.inputs.dataset_inputs if mlflow_run.inputs else ():
            logged_data.add((logged.dataset.name, logged.dataset.digest))
        fresh = []
        for entry in self._runs():
            for dataset in facts.inputs(entry.about):
                if (dataset.name, dataset.digest[: facts.DIGEST]) not in logged_data:
                    fresh.append(
                        DatasetInput(
                            Dataset(encodable(dataset.name), dataset.digest[: facts.DIGEST], "engram", dataset.source),
                            [InputTag("mlflow.data.context", dataset.context)],
                        )
                    )
        if fresh:
            server, run_id = self._server_and_id()
            server.client.log_inputs(run_id, fresh)

    def _params(self) -> dict[str, str]:
        return facts.common([facts.params(entry.about) for entry in self._runs()])

    def _tags(self) -> dict[str, str]:
        return facts.tags(self.journal, [entry.journal for entry in self._runs()])

    def _name(self, parent: Entry | None) -> str:
        """Return the name for MLflow's run list."""
        if parent:
            return parent.names.get(self.journal.run, self.journal.run)
        return note.run_name(self.journal)

    def _name_tags(self, mlflow_run: Any, name: str) -> dict[str, str]:
        """Return the tags that give the run this name. Returns an empty dict if a user has renamed the run."""
        known_names = (self.journal.run, mlflow_run.data.tags.get(SHOWN, name))
        if mlflow_run.info.run_name in known_names:
            return {SHOWN: name, NAME: name}
        return {}

    def _runs(self) -> Sequence[Entry]:
        return self.cells or (self,)

    def _began(self) -> float:
        return self.course.began or seconds_of(self.about["created"])

    def _log(
        self,
        metrics: Sequence[Any] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log these items in as few requests as possible."""
        from mlflow.entities import Param, RunTag

        server, run_id = self._server_and_id()
        run_params = [Param(name, encodable(value)) for name, value in (params or {}).items()]
        run_tags = [RunTag(name, encodable(value)) for name, value in (tags or {}).items()]
        batches = zip_longest(
            _batches(metrics, METRICS), _batches(run_params, PARAMS), _batches(run_tags, PARAMS), fillvalue=()
        )
        for metric_batch, param_batch, tag_batch in batches:
            server.client.log_batch(run_id, metrics=metric_batch, params=param_batch, tags=tag_batch)

    def _server_and_id(self) -> tuple[Server, str]:
        assert self._server is not None
        return self._server, _id(self)


def _metrics(point: Point) -> Iterator[Any]:
    from mlflow.entities import Metric

    values = {DONE: point.done, FAILED: point.failed, RATE: point.models_per_minute}
    for name, value in values.items():
        if value is not None:
            yield Metric(name, float(value), int(point.time * 1000), point.step)


def _changed(logged_tags: Mapping[str, str], tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that MLflow lacks, or has with another value."""
    return {name: value for name, value in tags.items() if logged_tags.get(name) != encodable(value)}


def _id(entry: Entry) -> str:
    assert entry.receipt is not None
    return entry.receipt.run_id


def _batches(items: Sequence[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
