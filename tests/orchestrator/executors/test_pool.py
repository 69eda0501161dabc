"""Failures specific to a pool of forked processes."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import ClusterError
from orchestrator.executors import forked_workers, pool
from orchestrator.executors.calls import Done, Lost
from orchestrator.executors.pool import PoolExecutor
from orchestrator.store import Store
from tasks.contract.resources import Resources
from tasks.worker.process_guard import state
from tests.orchestrator.executors.jobs import call, key_of
from tests.orchestrator.executors.test_executors import ROOT, drain, outcomes
from tests.support.waiting import HANGING, wait_until


@pytest.fixture
def executor(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PoolExecutor]:
    monkeypatch.setenv("ENGRAM_TOLD", str(tmp_path))
    opened = PoolExecutor(store.location, slots=2)
    yield opened
    opened.close()


def server_of(executor: PoolExecutor) -> int:
    return executor._workers.server


def test_killed_server_loses_calls_and_is_replaced(executor: PoolExecutor, tmp_path: Path) -> None:
    executor.submit(call("until", 1.0, first=1))
    wait_until(lambda: list(executor.wait(0.05)) == [] and (tmp_path / "began-1").exists())
    os.kill(server_of(executor), signal.SIGKILL)
    lost = Lost(key_of(1), "the process that starts the workers died", died=False)
    assert [lost] == outcomes(drain(executor, 1))
    executor.submit(call("double", 1.0, first=2))
    assert [Done] == [type(outcome) for outcome in outcomes(drain(executor, 1))]


def test_server_that_cannot_start_is_reported(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_workers, "ROOT", str(tmp_path))
    (tmp_path / "orchestrator.py").write_text("raise RuntimeError('the wrong module')\n")
    executor = PoolExecutor(store.location)
    executor.submit(call("double", 1.0))
    with pytest.raises(ClusterError, match="worker processes cannot be started: RuntimeError: the wrong module"):
        drain(executor, 1)
    executor.close()


def test_worker_ended_without_memory_names_the_cause(executor: PoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([1])
    monkeypatch.setattr(pool, "count_oom_kills", lambda: next(counts))
    monkeypatch.setattr(executor, "_oom_kills", 0)
    executor.submit(call("die", 1.0))
    [outcome] = outcomes(drain(executor, 1))
    assert outcome.exhausted == "host"
    assert outcome.cause == "the host's memory ran out, so the system ended its worker process"


@pytest.mark.parametrize(("memory", "cpus"), [(math.inf, 0), (0.0, 2), (0.0, 64)])
def test_calls_that_need_the_whole_machine_run_alone(
    executor: PoolExecutor, tmp_path: Path, memory: float, cpus: int
) -> None:
    executor.submit(call("until", 1.0, first=1))
    executor.submit(replace(call("until", 2.0, first=2), memory=memory, resources=Resources(cpus=cpus)))
    wait_until(lambda: list(executor.wait(0.05)) == [] and (tmp_path / "began-1").exists())
    assert [running.number for running, _ in executor.running()] == [1]
    (tmp_path / "go").touch()
    assert len(drain(executor, 2)) == 2


DRIVER = """
import sys
from orchestrator.executors.pool import PoolExecutor
from tests.orchestrator.executors.jobs import call
executor = PoolExecutor(sys.argv[1], slots=2)
for number in (1, 2):
    executor.submit(call("until", number, first=number))
executor.wait(600.0)
"""


@pytest.mark.parametrize("victim", ["driver", "server and driver"])
def test_no_process_outlives_a_killed_driver(store: Store, tmp_path: Path, victim: str) -> None:
    environment = {**os.environ, "ENGRAM_TOLD": str(tmp_path)}
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, store.location], env=environment, cwd=ROOT)
    wait_until(lambda: len(list(tmp_path.glob("began-*"))) == 2)
    processes = descendants(driver.pid)
    assert len(processes) == 3
    if victim != "driver":
        os.kill(driver.pid, signal.SIGSTOP)
        os.kill(processes[0], signal.SIGKILL)
    driver.kill()
    driver.wait(HANGING)
    wait_until(lambda: {state(pid) for pid in processes} <= {None, "Z"})


def descendants(parent: int) -> list[int]:
    """The living descendants of a process, parents first."""
    children = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        children += map(int, (task / "children").read_text().split())
    return [*children, *(pid for child in children for pid in descendants(child))]


def test_server_has_no_threads_that_a_fork_would_lose(store: Store) -> None:
    executor = PoolExecutor(store.location, modules=["torch", "scipy.stats"])
    try:
        executor.submit(call("threads", 1.0))
        drain(executor, 1)
        threads = Path(f"/proc/{server_of(executor)}/task").glob("*/comm")
        other_threads = sorted(path.read_text().strip() for path in threads if path.parent.name != path.parts[2])
        assert other_threads == ["jemalloc_bg_thd"]  # of pyarrow, which handles forks
    finally:
        executor.close()
