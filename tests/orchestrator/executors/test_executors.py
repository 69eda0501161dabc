"""Rules that every executor keeps, tested with real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.executors import Executor
from orchestrator.executors.calls import Done, Failed, Finished, Lost, Missing, Refused
from orchestrator.executors.local import LocalExecutor
from orchestrator.executors.pool import PoolExecutor
from orchestrator.planning.plan import Plan
from orchestrator.scheduling.driver import Driver
from orchestrator.scheduling.stop import Stop
from orchestrator.store import Store, open_store
from tasks.contract.job import Job
from tests.orchestrator.executors import jobs
from tests.orchestrator.executors.jobs import call, key_of
from tests.support.waiting import HANGING, wait_until

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


def open_named(name: str, request: pytest.FixtureRequest, store: Store) -> Executor:
    """An executor by name, with two workers if it has processes."""
    if name == "local":
        return LocalExecutor(store.location)
    if name == "pool":
        return PoolExecutor(store.location, slots=2)
    from orchestrator.executors.ray import RayExecutor

    cluster: Any = request.getfixturevalue("ray_cluster")
    return RayExecutor(store.location, address=cluster.address)


@pytest.fixture(params=["local", "ray", "pool"])
def executor(request: pytest.FixtureRequest, store: Store) -> Iterator[Executor]:
    opened = open_named(request.param, request, store)
    yield opened
    opened.close()


@pytest.fixture(params=["ray", "pool"])
def workers(request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    """An executor whose workers are processes."""
    monkeypatch.setenv("ENGRAM_TOLD", str(request.getfixturevalue("tmp_path")))
    opened = open_named(request.param, request, store)
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


def drain(executor: Executor, count: int) -> list[Finished]:
    """Collect results until `count` calls have returned."""
    finished: list[Finished] = []
    end = time.monotonic() + HANGING
    while len(finished) < count and time.monotonic() < end:
        finished += executor.wait(1.0)
    return finished


def outcomes(finished: Sequence[Finished]) -> list[Any]:
    result = []
    for finished_call in finished:
        result.extend(finished_call.outcomes)
    return result


def test_every_call_returns_once_with_all_outcomes(executor: Executor, store: Store) -> None:
    calls = []
    for number in range(1, 21):
        calls.append(call("double", *range(1 + number % 3), first=10 * number))
    for submitted in calls:
        executor.submit(submitted)
    finished = drain(executor, len(calls))
    assert sorted(range(10, 210, 10)) == sorted(finished_call.call.number for finished_call in finished)
    assert {submitted.number: submitted for submitted in calls} == {
        finished_call.call.number: finished_call.call for finished_call in finished
    }
    for finished_call in finished:
        assert [item.key for item in finished_call.call.items] == [outcome.key for outcome in finished_call.outcomes]
        assert all(isinstance(outcome, Done) for outcome in finished_call.outcomes)
    assert list(executor.wait(0.0)) == []
    assert set(store.read(key_of(21))["value"].to_pylist()) == {2.0}


def test_results_are_stored_when_a_call_returns(executor: Executor, store: Store) -> None:
    executor.submit(call("double", 3.0, first=1))
    drain(executor, 1)
    executor.submit(call("double", 4.0, first=2, inputs=[key_of(1)]))
    drain(executor, 1)
    assert store.read(key_of(2))["value"].to_pylist() == [14.0]


def test_outcomes_are_transferred_completely(executor: Executor, store: Store) -> None:
    executor.submit(call("fail", 7.0, first=1))
    executor.submit(call("double", 1.0, first=2, inputs=[key_of(99)]))
    failed, missing_outcome = (
        outcome
        for finished_call in sorted(drain(executor, 2), key=lambda finished_call: finished_call.call.number)
        for outcome in finished_call.outcomes
    )
    assert isinstance(failed, Failed)
    assert failed.error == "ValueError: 7.0 is not a number we like nor is this line"
    assert "in fail" in failed.traceback
    assert Missing(key_of(2), (key_of(99),)) == missing_outcome


def test_store_that_refuses_writes_gives_an_outcome(executor: Executor, store: Store, tmp_path: Path) -> None:
    for number in range(executor.slots):  # every worker has the store open by then
        executor.submit(call("sleep", 0.5, first=1 + number))
    drain(executor, executor.slots)
    folder = tmp_path / "store" / "results"
    for child in sorted(folder.rglob("*"), reverse=True):
        child.rmdir() if child.is_dir() else child.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    executor.submit(call("double", 1.0, first=50))
    assert [Refused] == [type(outcome) for finished_call in drain(executor, 1) for outcome in finished_call.outcomes]


def test_cancelled_calls_never_return(executor: Executor, store: Store) -> None:
    for number in range(1, 9):
        executor.submit(call("sleep", 300.0, first=number))  # cannot end before it is cancelled
    executor.cancel()
    assert list(executor.wait(0.2)) == []
    executor.submit(call("double", 1.0, first=100))
    assert [finished_call.call.number for finished_call in drain(executor, 1)] == [100]


def test_submitted_calls_are_pending_until_returned_or_cancelled(executor: Executor) -> None:
    assert executor.pending == 0
    assert list(executor.running()) == []
    executor.submit(call("double", 1.0, first=1))
    assert executor.pending == 1
    drain(executor, 1)
    assert executor.pending == 0
    assert list(executor.running()) == []
    executor.submit(call("sleep", 20.0, first=2))
    executor.cancel()
    executor.halt()
    assert executor.pending == 0


def test_slots_and_window_limit_submissions(executor: Executor) -> None:
    assert 1 <= executor.slots <= executor.window <= 512


def test_closing_twice_is_harmless(executor: Executor) -> None:
    executor.close()
    executor.close()


def test_torch_uses_one_thread_in_calls(executor: Executor, store: Store) -> None:
    import torch  # in this process it uses all cores; a worker has not loaded it yet

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        executor.submit(call("threads", 1.0))
        drain(executor, 1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert store.read(key_of(1))["threads"].to_pylist() == [1]
    assert store.record(key_of(1))["threads"] == 1


def test_torch_loaded_by_a_call_uses_one_thread(store: Store) -> None:
    """In a process where the call itself is the first to load torch."""
    script = f"""
import os, sys
from orchestrator.executors.local import LocalExecutor
from tests.orchestrator.executors.jobs import call
from tests.support.waiting import HANGING
executor = LocalExecutor({store.location!r})
assert "torch" not in sys.modules
executor.submit(call("threads", 1.0))
executor.wait(1.0)
print("OMP_NUM_THREADS" in os.environ)
"""
    environment = {}
    for name, value in os.environ.items():
        if not name.endswith("_THREADS"):
            environment[name] = value
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.stdout.strip() == "False", done.stderr
    assert store.read(key_of(1))["threads"].to_pylist() == [1]


def test_interrupt_in_a_task_ends_the_local_wait(store: Store) -> None:
    executor = LocalExecutor(store.location)
    executor.submit(call("interrupt", 1.0))
    with pytest.raises(KeyboardInterrupt):
        executor.wait(1.0)


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
