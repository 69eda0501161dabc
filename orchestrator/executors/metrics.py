"""Prometheus metrics of a run, served by the metrics endpoint of each node in a Ray cluster.

The driver counts the outcomes that workers return, so no count is lost when a worker process dies. The endpoint
requires no token. Labels contain only the names of runs, audits, tasks, outcomes and operations.
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

RUN = ("run", "audit")  # labels of every metric
JOB_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
STORE_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Metric:
    """One metric. Ray exports it as `exported` and adds further labels."""

    name: str
    kind: Literal["Counter", "Gauge", "Histogram"]
    description: str
    labels: tuple[str, ...] = ()  # in addition to RUN
    bounds: tuple[float, ...] = ()  # bucket boundaries of a histogram

    @property
    def exported(self) -> str:
        return f"ray_{self.name}{ {'Counter': '_total', 'Gauge': '', 'Histogram': '_bucket'}[self.kind] }"


# The sums of Ray's histograms are wrong (each value counts as the middle of its bucket), so sums are separate counters.
METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "engram_jobs",
            "Counter",
            "Jobs by outcome: done, failed (final), lost or missing (sent again), refused (the run pauses).",
            ("task", "outcome"),
        ),
        Metric("engram_job_seconds", "Counter", "Total seconds of finished jobs.", ("task",)),
        Metric(
            "engram_job_duration", "Histogram", "Finished jobs by duration in seconds.", ("task",), bounds=JOB_SECONDS
        ),
        Metric("engram_models", "Counter", "Networks trained by finished jobs.", ("task",)),
        Metric("engram_queue", "Gauge", "Current jobs: sent to the cluster, or waiting.", ("state",)),
        Metric("engram_gpu_seconds", "Counter", "Total seconds of jobs that measured their GPU.", ("task",)),
        Metric("engram_gpu_busy_seconds", "Counter", "Seconds in which the GPU was busy during these jobs.", ("task",)),
        Metric("engram_store_bytes", "Counter", "Bytes of tables read or written by workers.", ("operation",)),
        Metric("engram_store_seconds", "Counter", "Total seconds of these reads and writes.", ("operation",)),
        Metric(
            "engram_store_latency",
            "Histogram",
            "Reads and writes of tables by workers, by duration in seconds.",
            ("operation",),
            bounds=STORE_SECONDS,
        ),
    )
}


@dataclass(frozen=True)
class Transfer:
    """A table that a worker read from or wrote to the store."""

    operation: Literal["read", "write"]
    seconds: float
    bytes: int


class _TimedStore:
    def __init__(self, store: Store, transfers: list[Transfer]) -> None:
        self._store = store
        self._transfers = transfers

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
    """Wrap the store. Returns the wrapped store and the list to which its reads and writes are added as they end."""
    transfers: list[Transfer] = []
    return cast(Store, _TimedStore(store, transfers)), transfers


class Metrics:
    """The metrics of one run. Counting requires a run name and a connection to a cluster."""

    def __init__(self, run: str) -> None:
        self._labels = dict(zip(RUN, (run, run.partition("-")[0]), strict=True))

    def count_job(self, task: str, outcome: str) -> None:
        self._record("engram_jobs", 1, task=task, outcome=outcome)

    def count_computed(self, task: str, seconds: float, models: int, busy: float | None) -> None:
        """Count a finished job. `busy` is the fraction of its seconds during which its GPU was busy."""
        self._record("engram_models", models, task=task)
        if not seconds:  # the job was lost, but its result is stored
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

    def set_queue(self, sent_jobs: int, waiting_jobs: int) -> None:
        self._record("engram_queue", sent_jobs, state="sent")
        self._record("engram_queue", waiting_jobs, state="waiting")

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
        """Ray's object for each metric. Empty if there is no connection, and with ray://, which has no endpoint."""
        ray = sys.modules.get("ray")
        if not self._labels["run"] or ray is None or not ray.is_initialized() or ray.util.client.ray.is_connected():
            return {}
        from ray.util import metrics

        instruments = {}
        for name, metric in METRICS.items():
            instruments[name] = getattr(metrics, metric.kind)(
                name,
                metric.description,
                tag_keys=(*RUN, *metric.labels),
                **({"boundaries": list(metric.bounds)} if metric.bounds else {}),
            )
        return instruments
