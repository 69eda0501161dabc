"""Rules that every executor keeps, tested with real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.executors import Executor
from orchestrator.executors.calls import Done, Failed, Finished, Missing, Refused
from orchestrator.executors.local import LocalExecutor
from orchestrator.executors.pool import PoolExecutor
from orchestrator.run_folder.job_metrics import read_metrics
from orchestrator.store import Store, open_store
from orchestrator.store.job_files import job_states, read_streams
from tasks.contract.resources import Resources
from tests.orchestrator.executors.jobs import call, key_of
from tests.support.waiting import HANGING

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


@pytest.fixture(scope="module")
def connected_address(ray_cluster: Any) -> Iterator[str]:
    """The cluster's address. All executors use one connection, so that they share the workers, which start slowly."""
    from orchestrator.executors.connection import connect

    with connect(ray_cluster.address) as (address, _, _):
        yield address


def open_named(name: str, store: Store, address: str) -> Executor:
    """An executor by name, with two workers if it has processes. The address is that of a Ray cluster."""
    if name == "local":
        return LocalExecutor(store.location)
    if name == "pool":
        return PoolExecutor(store.location, slots=2)
    from orchestrator.executors.ray import RayExecutor

    return RayExecutor(store.location, address=address)


@pytest.fixture(params=["local", "ray", "pool"])
def executor(request: pytest.FixtureRequest, store: Store) -> Iterator[Executor]:
    address = request.getfixturevalue("connected_address") if request.param == "ray" else ""
    opened = open_named(request.param, store, address)
    yield opened
    opened.close()


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


@pytest.mark.parametrize("executor", ["ray", "pool"], indirect=True)
def test_state_and_output_survive_the_death_of_a_worker(executor: Executor, store: Store) -> None:
    for _ in range(2):
        executor.submit(call("serve", -1.0))
        (outcome,) = outcomes(drain(executor, 1))
    assert isinstance(outcome, Done)
    assert store.read(key_of(1))["attempt"].to_pylist() == [2]
    streams = read_streams(store, key_of(1))
    assert [line for line in streams["stdout"].splitlines() if "---" not in line] == ["attempt 1", "attempt 2"]
    assert streams["stderr"].count("of a program\n") == 2
    assert [point.step for point in read_metrics(store, key_of(1))] == [1, 2]
    assert job_states(store) == {}


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


@pytest.mark.parametrize(("visible", "seen"), [(None, "0,1"), ("GPU-c,GPU-a,GPU-b", "GPU-c,GPU-a")])
def test_local_job_sees_only_its_gpus(
    store: Store, monkeypatch: pytest.MonkeyPatch, visible: str | None, seen: str
) -> None:
    monkeypatch.setattr("orchestrator.executors.local.count_gpus", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    executor = LocalExecutor(store.location)
    resources = Resources(gpus=2)
    executor.submit(replace(call("visible_gpus", 1), gpus=2.0, resources=resources))
    assert [Done] == [type(outcome) for outcome in outcomes(drain(executor, 1))]
    assert store.read(key_of(1)).to_pylist() == [{"seen": seen, "told": 2}]
    assert executor.obstacle(resources) is None
    assert executor.obstacle(Resources(gpus=4)) == "this process (--address none) may use 3 GPUs"


def test_interrupt_in_a_task_ends_the_local_wait(store: Store) -> None:
    executor = LocalExecutor(store.location)
    executor.submit(call("interrupt", 1.0))
    with pytest.raises(KeyboardInterrupt):
        executor.wait(1.0)
