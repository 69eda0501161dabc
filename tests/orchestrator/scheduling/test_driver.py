"""The driver handles failing executors, idle other runs and signals."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toys

from orchestrator.errors import ClusterError
from orchestrator.executors.calls import Call, Finished
from orchestrator.executors.local import LocalExecutor
from orchestrator.planning.plan import Plan
from orchestrator.run_folder.journal import Journal
from orchestrator.runs.lifecycle import start
from orchestrator.runs.report import Report
from orchestrator.scheduling import driver as driver_module
from orchestrator.scheduling import stop as stop_module
from orchestrator.scheduling import waiting
from orchestrator.scheduling.driver import Driver
from orchestrator.scheduling.stop import Stop
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store
from orchestrator.store.lease import acquire
from tasks.contract.quantities import Duration
from tasks.contract.resources import Resources
from tests.support.golden import Golden

HERE = Execution(address="none", mlflow="off", report=False)


def run(store: Store, events: list[Mapping[str, Any]], **fields: Any) -> Report:
    return start([Cell("toys", toys.Config(**fields))], store, HERE, events.append)


def told_lines(events: list[Mapping[str, Any]]) -> list[str]:
    return [event["line"] for event in events if event["event"] == "told"]


class Gone(LocalExecutor):
    """An executor whose cluster fails after the first call. If `stop` is given, the run was asked to stop before."""

    def __init__(self, store: str, stop: Stop | None) -> None:
        super().__init__(store)
        self._stop = stop

    def wait(self, seconds: float) -> Sequence[Finished]:
        if self._stop is not None:
            self._stop.ask("SIGTERM")
        raise ClusterError("the cluster is gone")


def test_lost_cluster_interrupts_only_a_stopping_run(store: Store) -> None:
    plan = Plan.from_roots(toys.plan(toys.Config()))
    stop = Stop()
    driver = Driver(store, lambda: Gone(store.location, stop), lambda event: None, stop)
    driver.drive(plan, set())
    assert driver.stopped == "SIGTERM"
    with pytest.raises(ClusterError, match="gone"):
        Driver(store, lambda: Gone(store.location, None), lambda event: None, Stop()).drive(plan, set())


def test_failed_start_while_stopping_is_an_interrupt(store: Store) -> None:
    stop = Stop()

    def opened() -> LocalExecutor:
        stop.ask("SIGTERM")
        raise ClusterError("Ray cannot start on this machine")

    driver = Driver(store, opened, lambda event: None, stop)
    driver.drive(Plan.from_roots(toys.plan(toys.Config())), set())
    assert driver.stopped == "SIGTERM"


class Busy(LocalExecutor):
    """An executor that reports every call as running for a week and notes the calls that it is to end."""

    def __init__(self, store: str) -> None:
        super().__init__(store)
        self.asked: list[tuple[str, str, int]] = []
        self._last: Call | None = None

    def submit(self, call: Call) -> None:
        self._last = call
        super().submit(call)

    def running(self) -> Sequence[tuple[Call, float]]:
        return [(self._last, 7 * 86400.0)] if self._last else []

    def wait(self, seconds: float) -> Sequence[Finished]:
        return super().wait(seconds) if self.asked else ()  # it computes nothing until it was asked to end a call

    def end(self, call: Call, why: str) -> None:
        self.asked.append((call.task, why, len(self._store.keys())))


@pytest.mark.parametrize(
    ("stated", "timeout", "price", "limits"),
    [
        (0.0, None, None, ["24 h", "10 min"]),
        (0.0, None, 1.0, ["1 h", "10 min"]),
        (0.0, None, 360.0, ["2 h", "10 min"]),
        (0.0, 90.0, 360.0, ["1 min 30 s"]),
        (5.0, 90.0, 360.0, ["5 s"]),
    ],
)
def test_call_ends_after_stated_given_learned_or_priced_time(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    stated: float,
    timeout: float | None,
    price: float | None,
    limits: list[str],
) -> None:
    monkeypatch.setattr(driver_module, "POLL", 0.0)
    executor = Busy(store.location)
    events: list[Mapping[str, Any]] = []
    driver = Driver(
        store, lambda: executor, events.extend, Stop(), together=1, timeout=timeout, price=lambda group: price
    )
    config = toys.Config(parts=3, seconds=0.001, resources=Resources(time=Duration(stated)))
    driver.drive(Plan.from_roots(toys.plan(config)), set())
    assert set(driver.progress.computed) == store.keys()
    reasons = dict.fromkeys(why for task, why, _ in executor.asked if task == "toys.part")
    assert list(reasons) == [f"it was ended after {limit}, its time limit" for limit in limits]


@pytest.mark.parametrize("address", ["none", "pool"])
def test_job_that_can_never_begin_stops_the_run(store: Store, tmp_path: Path, golden: Golden, address: str) -> None:
    config = toys.Config(folder=str(tmp_path), resources=Resources(gpus=64, cpus=64, time=Duration(60)))
    with pytest.raises(ClusterError) as refused:
        start([Cell("toys", config)], store, replace(HERE, address=address, gpus="none"))
    golden(str(refused.value))
    assert not (tmp_path / "computed.log").exists()


def test_interrupt_waits_no_longer_than_grace(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_module, "GRACE", 0.05)

    def interrupt() -> None:
        while not (tmp_path / "began.log").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    events: list[Mapping[str, Any]] = []
    report = run(store, events, trouble="wait", at=0, folder=str(tmp_path))  # nothing ever releases it
    assert report.state == "interrupted"
    assert report.exit_code == 130
    assert report.jobs["done"] == 0
    assert "stopping: no new job is started, 1 running call may take" in told_lines(events)[0]
    (tmp_path / "go").touch()
    assert run(store, [], trouble="wait", at=0, folder=str(tmp_path)).state == "finished"


def test_jobs_of_an_idle_run_are_computed_here(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other run's heart beats, as in a process that hangs, but its driver does nothing."""
    monkeypatch.setattr(waiting, "OTHERS_SECONDS", 0.01)
    for name in ("PATIENCE", "FLOOR"):
        monkeypatch.setattr(waiting, name, 1.0)
    other_run = Path(store.folder("runs")) / "toys-hung"
    Journal(other_run).create({}, Plan.from_roots(toys.plan(toys.Config(parts=6, label="other"))))
    events: list[Mapping[str, Any]] = []
    with acquire([other_run]):
        report = run(store, events, parts=7)
    assert report.state == "finished"
    assert report.jobs["done"] == 8
    process = f"process {os.getpid()} on "
    waits, *_, gives_up = told_lines(events)
    assert f" for toys-hung ({process}" in waits
    assert "6 jobs), which compute" in waits
    assert gives_up.startswith(f"toys-hung ({process}")
    assert " has made no progress for " in gives_up
    assert "; computing the 6 jobs that it shares with this run" in gives_up
