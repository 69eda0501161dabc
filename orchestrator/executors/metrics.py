"""What is counted of a run for Prometheus, on the metrics endpoint that each node of a Ray cluster has.

The driver counts what comes back from the workers, so that no count goes with a worker process. The endpoint asks for
no token: a label holds the name of a run, an audit, a task, an outcome or an operation, and nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

import pyarrow as pa

from orchestrator.store import Store, WriteEffect

RUN = ("run", "audit")  # the labels of every metric
JOB_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
STORE_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Metric:
    """One metric: Ray exports it as `exported`, with its labels and some of its own."""

    name: str
    kind: Literal["Counter", "Gauge", "Histogram"]
    description: str
    labels: tuple[str, ...] = ()  # besides RUN
    bounds: tuple[float, ...] = ()  # of a histogram's buckets

    @property
    def exported(self) -> str:
        return f"ray_{self.name}{ {'Counter': '_total', 'Gauge': '', 'Histogram': '_bucket'}[self.kind] }"


# The sum of a histogram of Ray's is wrong (it takes each value for the middle of its bucket): sums have counters.
METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "engram_jobs",
            "Counter",
            "Jobs that came back: done, failed (for good), lost or missing (sent again), refused (a pause).",
            ("task", "outcome"),
        ),
        Metric("engram_job_seconds", "Counter", "Seconds that the jobs that are done took.", ("task",)),
        Metric(
            "engram_job_duration", "Histogram", "Jobs that are done, by their seconds.", ("task",), bounds=JOB_SECONDS
        ),
        Metric("engram_models", "Counter", "Networks trained by the jobs that are done.", ("task",)),
        Metric("engram_queue", "Gauge", "Jobs now: sent to the cluster, or waiting.", ("state",)),
        Metric("engram_gpu_seconds", "Counter", "Seconds of the jobs that measured their GPU.", ("task",)),
        Metric("engram_gpu_busy_seconds", "Counter", "Seconds of these for which they kept it busy.", ("task",)),
        Metric("engram_store_bytes", "Counter", "Bytes of tables read or written by workers.", ("operation",)),
        Metric("engram_store_seconds", "Counter", "Seconds that these reads and writes took.", ("operation",)),
        Metric(
            "engram_store_latency",
            "Histogram",
            "Reads and writes of tables by workers, by their seconds.",
            ("operation",),
            bounds=STORE_SECONDS,
        ),
    )
}


@dataclass(frozen=True)
class Transfer:
    """A table that a worker read from the store or wrote into it."""

    operation: Literal["read", "write"]
    seconds: float
    bytes: int


class _TimedStore:
    def __init__(self, store: Store, transfers: list[Transfer]) -> None:
        self._store, self._transfers = store, transfers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, key: str) -> pa.Table:
        began = time.monotonic()
        table = self._store.read(key)
        self._transfers.append(Transfer("read", time.monotonic() - began, table.get_total_buffer_size()))
        return table

    def write(self, key: str, table: pa.Table, record: Mapping[str, Any]) -> WriteEffect:
        began = time.monotonic()
        effect = self._store.write(key, table, record)
        self._transfers.append(Transfer("write", time.monotonic() - began, table.get_total_buffer_size()))
        return effect


def timed_store(store: Store) -> tuple[Store, list[Transfer]]:
    """The store, and the list to which its reads and writes are added as they end."""
    transfers: list[Transfer] = []
    return cast(Store, _TimedStore(store, transfers)), transfers


class Metrics:
    """The metrics of one run. Nothing is counted without one, nor while this process is not connected to a cluster."""

    def __init__(self, run: str) -> None:
        self._labels = dict(zip(RUN, (run, run.partition("-")[0]), strict=True))

    def count_job(self, task: str, outcome: str) -> None:
        self._record("engram_jobs", 1, task=task, outcome=outcome)

    def count_computed(self, task: str, seconds: float, models: int, busy: float | None) -> None:
        """Count what a job that is done took: `busy` is the share of its seconds for which it kept a GPU busy."""
        self._record("engram_models", models, task=task)
        if not seconds:  # it came back lost, and its result was found
            return
        self._record("engram_job_seconds", seconds, task=task)
        self._record("engram_job_duration", seconds, task=task)
        if busy is not None:
            self._record("engram_gpu_seconds", seconds, task=task)
            self._record("engram_gpu_busy_seconds", busy * seconds, task=task)

    def count_transfer(self, transfer: Transfer) -> None:
        self._record("engram_store_bytes", transfer.bytes, operation=transfer.operation)
        self._record("engram_store_seconds", transfer.seconds, operation=transfer.operation)
        self._record("engram_store_latency", transfer.seconds, operation=transfer.operation)

    def set_queue(self, sent: int, waiting: int) -> None:
        self._record("engram_queue", sent, state="sent")
        self._record("engram_queue", waiting, state="waiting")

    def _record(self, name: str, value: float, **labels: str) -> None:
        if (instrument := self._instruments.get(name)) is None:
            return
        labels = self._labels | labels
        match METRICS[name].kind:
            case "Counter" if value > 0:
                instrument.inc(value, labels)
            case "Gauge":
                instrument.set(value, labels)
            case "Histogram":
                instrument.observe(value, labels)

    @cached_property
    def _instruments(self) -> Mapping[str, Any]:
        """Ray's object for each metric; empty without a connection, and through ray://, where there is no endpoint."""
        ray = sys.modules.get("ray")
        if not self._labels["run"] or ray is None or not ray.is_initialized() or ray.util.client.ray.is_connected():
            return {}
        from ray.util import metrics

        return {
            name: getattr(metrics, metric.kind)(
                name,
                metric.description,
                tag_keys=(*RUN, *metric.labels),
                **({"boundaries": list(metric.bounds)} if metric.bounds else {}),
            )
            for name, metric in METRICS.items()
        }
