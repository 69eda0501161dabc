"""What a driver does about executors, other runs and signals that do not do as they should."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
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

HERE = Execution(address="none", mlflow="off", report=False)


def run(store: Store, events: list[Mapping[str, Any]], **fields: Any) -> Report:
    return start([Cell("toys", toys.Config(**fields))], store, HERE, events.append)


def told(events: list[Mapping[str, Any]]) -> list[str]:
    return [event["line"] for event in events if event["event"] == "told"]


class Gone(LocalExecutor):
    """An executor whose cluster is gone after the first call; with `stop`, since the run was asked to stop."""

    def __init__(self, store: str, stop: Stop | None) -> None:
        super().__init__(store)
        self._stop = stop

    def wait(self, seconds: float) -> Sequence[Finished]:
        if self._stop is not None:
            self._stop.ask("SIGTERM")
        raise ClusterError("the cluster is gone")


def test_a_cluster_that_goes_with_the_wish_to_stop_is_an_interrupt_and_otherwise_an_error(store: Store) -> None:
    plan = Plan.from_roots(toys.plan(toys.Config()))
    stop = Stop()
    driver = Driver(store, lambda: Gone(store.location, stop), lambda event: None, stop)
    driver.drive(plan, set())
    assert driver.stopped == "SIGTERM"
    with pytest.raises(ClusterError, match="gone"):
        Driver(store, lambda: Gone(store.location, None), lambda event: None, Stop()).drive(plan, set())


def test_a_cluster_that_cannot_start_since_the_run_is_to_stop_is_an_interrupt(store: Store) -> None:
    stop = Stop()

    def opened() -> LocalExecutor:
        stop.ask("SIGTERM")
        raise ClusterError("Ray cannot start on this machine")

    driver = Driver(store, opened, lambda event: None, stop)
    driver.drive(Plan.from_roots(toys.plan(toys.Config())), set())
    assert driver.stopped == "SIGTERM"


class Busy(LocalExecutor):
    """An executor that says of each call that it has been running for a week, and notes which it is asked to end."""

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
    ("given", "price", "limits"),
    [
        (None, None, ["24 h", "10 min"]),
        (None, 1.0, ["1 h", "10 min"]),
        (None, 360.0, ["2 h", "10 min"]),
        (90.0, 360.0, ["1 min 30 s"]),
    ],
)
def test_a_call_is_ended_after_a_time_that_is_given_learnt_or_priced(
    store: Store, monkeypatch: pytest.MonkeyPatch, given: float | None, price: float | None, limits: list[str]
) -> None:
    monkeypatch.setattr(driver_module, "POLL", 0.0)
    executor = Busy(store.location)
    events: list[Mapping[str, Any]] = []
    driver = Driver(
        store, lambda: executor, events.extend, Stop(), together=1, timeout=given, price=lambda group: price
    )
    driver.drive(Plan.from_roots(toys.plan(toys.Config(parts=3, seconds=0.001))), set())
    assert set(driver.progress.computed) == store.keys()
    told = dict.fromkeys(why for task, why, _ in executor.asked if task == "toys.part")
    assert list(told) == [f"it was ended after {limit}, its time limit" for limit in limits]


def test_an_interrupt_waits_for_a_job_of_this_process_no_longer_than_the_grace(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_module, "GRACE", 0.05)

    def interrupt() -> None:
        while not (tmp_path / "began.log").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    events: list[Mapping[str, Any]] = []
    report = run(store, events, trouble="wait", at=0, folder=str(tmp_path))  # nobody ever lets it go
    assert (report.state, report.exit_code, report.jobs["done"]) == ("interrupted", 130, 0)
    assert "stopping: no new job is started, 1 running call may take" in told(events)[0]
    (tmp_path / "go").touch()
    assert run(store, [], trouble="wait", at=0, folder=str(tmp_path)).state == "finished"


def test_jobs_that_a_run_shares_with_one_that_does_nothing_are_computed_here_and_that_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run's heart beats, as it does in a process that hangs, and its driver does nothing."""
    monkeypatch.setattr(waiting, "OTHERS_SECONDS", 0.01)
    for name in ("PATIENCE", "FLOOR"):
        monkeypatch.setattr(waiting, name, 1.0)
    other = Path(store.folder("runs")) / "toys-hung"
    Journal(other).create({}, Plan.from_roots(toys.plan(toys.Config(parts=6, label="other"))))
    events: list[Mapping[str, Any]] = []
    with acquire([other]):
        report = run(store, events, parts=7)
    assert (report.state, report.jobs["done"]) == ("finished", 8)
    who = f"process {os.getpid()} on "
    waits, *_, gives_up = told(events)
    assert f" for toys-hung ({who}" in waits
    assert "6 jobs), which compute" in waits
    assert gives_up.startswith(f"toys-hung ({who}")
    assert " has made no progress for " in gives_up
    assert "; computing the 6 jobs that it shares with this run" in gives_up
