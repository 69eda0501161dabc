"""Rules that every executor with worker processes keeps, each test with workers of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.executors import Executor
from orchestrator.executors.calls import Done, Lost
from orchestrator.planning.plan import Plan
from orchestrator.scheduling.driver import Driver
from orchestrator.scheduling.stop import Stop
from orchestrator.store import Store, open_store
from tasks.contract.job import Job
from tests.orchestrator.executors import jobs
from tests.orchestrator.executors.jobs import call, key_of
from tests.orchestrator.executors.test_executors import drain, open_named, outcomes
from tests.support.waiting import wait_until


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


@pytest.fixture(params=["ray", "pool"])
def workers(request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    """An executor whose workers are processes."""
    monkeypatch.setenv("ENGRAM_TOLD", str(request.getfixturevalue("tmp_path")))
    address = request.getfixturevalue("ray_cluster").address if request.param == "ray" else ""
    opened = open_named(request.param, store, address)
    yield opened
    opened.close()


@pytest.fixture
def holding(workers: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    """An executor with four calls that wait for `go`. Two have begun, one per slot."""
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 3600.0)
    monkeypatch.setattr("orchestrator.executors.ray.BEGUN_SECONDS", 0.0)
    for number in range(1, 5):
        workers.submit(call("until", number, first=number))
    wait_until(lambda: list(workers.wait(0.05)) == [] and len(list(tmp_path.glob("began-*"))) == 2)
    yield workers
    workers.cancel()


def test_dying_worker_loses_only_its_own_call(workers: Executor) -> None:
    workers.submit(call("die", 1.0, 2.0, first=1))
    workers.submit(call("double", 1.0, first=3))
    by_key = {outcome.key: outcome for outcome in outcomes(drain(workers, 2))}
    assert Lost(key_of(1), "its worker process died", died=True) == by_key[key_of(1)]
    assert Lost(key_of(2), "its worker process died", died=True) == by_key[key_of(2)]
    assert isinstance(by_key[key_of(3)], Done)


def test_worker_with_broken_device_is_replaced(workers: Executor) -> None:
    workers.submit(call("break_the_device", 1.0, first=1))
    assert [Lost(key_of(1), "its worker process died", died=True)] == outcomes(drain(workers, 1))


def test_workers_have_one_thread_and_driver_settings(workers: Executor, store: Store, tmp_path: Path) -> None:
    workers.submit(call("surroundings", 1.0))
    drain(workers, 1)
    (row,) = store.read(key_of(1)).to_pylist()
    assert row["pid"] != os.getpid()
    assert [line for line in row["environment"] if line.startswith(("ENGRAM_TOLD", "MKL_NUM", "OMP_NUM"))] == [
        f"ENGRAM_TOLD={tmp_path}",
        "MKL_NUM_THREADS=1",
        "OMP_NUM_THREADS=1",
    ]


def test_halted_executor_finishes_only_running_calls(holding: Executor, tmp_path: Path) -> None:
    holding.halt()
    wait_until(lambda: list(holding.wait(0.1)) == [] and holding.pending == 2)
    (tmp_path / "go").touch()
    finished = outcomes(drain(holding, 2))
    assert [Done, Done] == [type(outcome) for outcome in finished]
    assert {f"began-{int(outcome.key, 16)}" for outcome in finished} == {path.name for path in tmp_path.glob("began-*")}
    assert holding.pending == 0


@pytest.mark.parametrize(
    ("workers", "is_private"), [("ray", True), ("ray", False), ("pool", True)], indirect=["workers"]
)
def test_ended_call_is_lost_and_others_continue(
    holding: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_private: bool
) -> None:
    monkeypatch.setattr(holding, "_is_private", is_private, raising=False)  # whether others may be using the cluster
    (first_call, seconds), (second_call, _) = holding.running()
    assert first_call.number == 1
    assert second_call.number == 2
    assert seconds >= 0.0
    lost_outcomes: list[Any] = []

    def lost() -> bool:
        holding.end(first_call, "it was ended")
        lost_outcomes.extend(outcomes(holding.wait(0.1)))
        return bool(lost_outcomes)

    wait_until(lost)
    assert [Lost(key_of(1), "it was ended", died=True)] == lost_outcomes
    wait_until(lambda: list(holding.wait(0.1)) == [] and [running.number for running, _ in holding.running()] == [2, 3])
    (tmp_path / "go").touch()
    assert [Done] * 3 == [type(outcome) for outcome in outcomes(drain(holding, 3))]


def test_hanging_job_is_ended_resent_and_finally_fails(
    workers: Executor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.BEGUN_SECONDS", 0.0)
    monkeypatch.setattr("orchestrator.scheduling.driver.POLL", 0.05)
    plan = Plan.from_roots({"summary": Job(jobs.until, jobs.Number(7))})
    events: list[Mapping[str, Any]] = []
    driver = Driver(store, lambda: workers, events.extend, Stop(), together=1, timeout=1.0)
    try:
        driver.drive(plan, set())
    finally:
        driver.close()
    (hung,) = plan.roots["summary"]
    assert (
        driver.progress.failed[hung].error
        == "its worker died 3 times; the last time: it was ended after 1 s, its time limit"
    )
    causes = [event["cause"] for event in events if event["event"] == "lost"]
    assert sum("it was ended after 1 s" in cause for cause in causes) == 3, causes  # a worker may die while it starts
