"""Placement of calls by Ray: little memory, drained machines, two GPU types and machines that may come."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from ray._raylet import GcsClient
from ray.core.generated.autoscaler_pb2 import DrainNodeReason

from orchestrator.errors import ClusterError
from orchestrator.executors.calls import Call, Done, Lost
from orchestrator.executors.gpu_packing import gpu_fraction
from orchestrator.executors.ray import RayExecutor
from orchestrator.store import Store
from tasks.contract.job import Job
from tasks.contract.quantities import ByteCount
from tasks.contract.resources import Resources
from tests.conftest import OBJECT_STORE_BYTES
from tests.orchestrator.executors import jobs
from tests.orchestrator.executors.jobs import call, key_of
from tests.orchestrator.executors.test_executors import drain, outcomes
from tests.orchestrator.executors.test_ray import driven, most_at_once, wanted_gpus
from tests.support.waiting import wait_until

GB = 2**30
Join = Callable[..., Any]


@pytest.fixture
def start_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which held jobs report their start."""
    monkeypatch.setenv("ENGRAM_TOLD", str(tmp_path))
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 0.2)
    return tmp_path


@pytest.fixture
def join(ray_cluster: Any) -> Iterator[Join]:
    """Starts machines without processors, which take only GPU calls. All are removed after the test."""
    joined = []

    def join(**options: Any) -> Any:
        joined.append(ray_cluster.add_node(num_cpus=0, object_store_memory=OBJECT_STORE_BYTES, **options))
        return joined[-1]

    yield join
    for node in joined:
        if node in ray_cluster.worker_nodes:
            ray_cluster.remove_node(node)
    ray_cluster.wait_for_nodes()  # until Ray has removed the nodes: the next test counts GPUs


@pytest.fixture
def open_executor(ray_cluster: Any, store: Store, start_folder: Path) -> Iterator[Callable[[], RayExecutor]]:
    """Opens an executor after the machines of a test have joined. None of its calls remains afterwards."""
    with contextlib.ExitStack() as stack:

        def open_executor() -> RayExecutor:
            executor = RayExecutor(store.location, address=ray_cluster.address)
            stack.callback(executor.close)
            stack.callback(executor.cancel)
            return executor

        yield open_executor


def held_call(number: int, gpus: float = gpu_fraction(4), memory: float = 0.0) -> Call:
    """A call that holds its part of a GPU until the file `go` exists."""
    return replace(call("held_on_gpu", number, first=number), gpus=gpus, memory=memory)


def began(start_folder: Path) -> set[int]:
    result = set()
    for path in start_folder.glob("began-*"):
        result.add(int(path.name.removeprefix("began-")))
    return result


def test_machine_memory_limits_concurrent_calls(
    join: Join, open_executor: Callable[[], RayExecutor], start_folder: Path, store: Store
) -> None:
    join(num_gpus=1, memory=GB)
    executor = open_executor()
    for number in (1, 2, 3):
        executor.submit(held_call(number, memory=0.4 * GB))
    executor.submit(held_call(4, memory=math.inf))
    wait_until(lambda: len(began(start_folder)) == 2)
    (start_folder / "go").touch()
    assert [Done] * 4 == [type(outcome) for outcome in outcomes(drain(executor, 4))]
    rows = {number: store.read(key_of(number)).to_pylist()[0] for number in (1, 2, 3, 4)}
    assert most_at_once(rows[number] for number in (1, 2, 3)) == 2
    assert all(most_at_once((rows[4], rows[number])) == 1 for number in (1, 2, 3))


def test_call_for_a_removed_machine_runs_elsewhere(
    join: Join, open_executor: Callable[[], RayExecutor], ray_cluster: Any, start_folder: Path
) -> None:
    large = join(num_gpus=1, memory=4 * GB)
    join(num_gpus=1, memory=GB)
    executor = open_executor()
    executor.submit(held_call(1, memory=3 * GB))
    wait_until(lambda: {1} == began(start_folder))
    executor.submit(held_call(2, memory=3 * GB))
    ray_cluster.remove_node(large, allow_graceful=False)
    lost_outcomes: list[Any] = []

    def lost_and_begun() -> bool:
        lost_outcomes.extend(outcomes(list(executor.wait(0.1))))
        return {1, 2} == began(start_folder) and bool(lost_outcomes)

    wait_until(lost_and_begun)
    assert [Lost(key_of(1), "its node went away")] == lost_outcomes
    (start_folder / "go").touch()
    assert [Done] == [type(outcome) for outcome in outcomes(drain(executor, 1))]


def test_worker_ended_for_memory_names_the_host(
    join: Join, open_executor: Callable[[], RayExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.01")  # more than that is always taken
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "50")
    join(num_gpus=1)
    executor = open_executor()
    executor.submit(held_call(1))
    cause = "the host's memory ran out, so Ray ended its worker process"
    assert [Lost(key_of(1), cause, died=True, exhausted="host")] == outcomes(drain(executor, 1))


def test_drained_machine_starts_no_new_calls(
    join: Join, open_executor: Callable[[], RayExecutor], ray_cluster: Any, start_folder: Path, store: Store
) -> None:
    leaving = join(num_gpus=2)
    staying = join(num_gpus=2)
    executor = open_executor()
    for number in range(16, 20):
        executor.submit(replace(call("small_or_large", number, first=number), gpus=1.0))
    wait_until(lambda: len(began(start_folder)) == 4)
    for number in range(20, 26):
        executor.submit(replace(call("small_or_large", number, first=number), gpus=1.0))
    deadline = int(1000 * (time.time() + 600))
    preempted = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    assert GcsClient(address=ray_cluster.address).drain_node(leaving.node_id, preempted, "spot", deadline)[0]
    wait_until(lambda: list(executor.wait(0.1)) == [] and executor.gpus == 2)
    (start_folder / "go").touch()
    assert [Done] * 10 == [type(outcome) for outcome in outcomes(drain(executor, 10))]
    where = [store.read(key_of(number))["node"][0].as_py() for number in range(16, 26)]
    assert {leaving.node_id, staying.node_id} == {*where[:4]}
    assert {staying.node_id} == {*where[4:]}


def test_job_sees_all_its_gpus_within_limit(join: Join, open_executor: Callable[[], RayExecutor], store: Store) -> None:
    join(num_gpus=2)
    executor = open_executor()
    executor.submit(replace(call("visible_gpus", 1), gpus=2.0))
    assert [Done] == [type(outcome) for outcome in outcomes(drain(executor, 1))]
    assert store.read(key_of(1)).to_pylist() == [{"seen": "0,1", "told": 2}]
    with pytest.raises(
        ClusterError,
        match=r"gpus_per_job is 3; it must be at most 2, the largest number of GPUs of a machine of the cluster",
    ):
        executor.submit(replace(call("visible_gpus", 2), gpus=3.0))


def test_calls_get_the_resources_that_they_state(
    join: Join, open_executor: Callable[[], RayExecutor], store: Store
) -> None:
    join(num_gpus=4, memory=GB)
    executor = open_executor()
    on_gpus = Resources(gpus=2, memory=ByteCount(GB // 2))
    for number in (1, 2):
        executor.submit(replace(call("visible_gpus", number, first=number), gpus=2.0, resources=on_gpus))
    on_cpus = Resources(cpus=2)
    for number in (3, 4):
        executor.submit(replace(call("on_cpu", 0.1, first=number), resources=on_cpus))
    assert [Done] * 4 == [type(outcome) for outcome in outcomes(drain(executor, 4))]
    gpu_rows = [store.read(key_of(number)).to_pylist()[0] for number in (1, 2)]
    assert {row["told"] for row in gpu_rows} == {2}
    assert {len(set(row["seen"].split(","))) for row in gpu_rows} == {2}
    cpu_rows = [store.read(key_of(number)).to_pylist()[0] for number in (3, 4)]
    assert {row["gpu"] for row in cpu_rows} == {""}
    assert most_at_once(cpu_rows) == 1
    for resources in (Resources(gpus=5), Resources(gpus=4, memory=ByteCount(2 * GB)), Resources(cpus=3)):
        assert (executor.obstacle(resources) or "").startswith("the best match in the cluster has ")
    assert executor.obstacle(on_gpus) is None
    executor.submit(replace(call("visible_gpus", 5, first=5), gpus=5.0, resources=Resources(gpus=5, cpus=1)))
    assert executor.lacks() == "machine with 5 GPUs, 1 processor"


def test_larger_gpu_is_shared_by_more_calls(
    join: Join,
    open_executor: Callable[[], RayExecutor],
    start_folder: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stack takes 0.4 of the small GPU's 1 GB and keeps a quarter of either GPU busy."""
    monkeypatch.setattr("orchestrator.executors.gpu_packing.UNMEASURED_JOBS", 4)
    join(num_gpus=1, labels={"ray.io/accelerator-type": "T4"})
    join(num_gpus=1, labels={"ray.io/accelerator-type": "A100"})
    executor = open_executor()
    assert executor.gpu_types == {"T4": 1, "A100": 1}
    roots = [Job(jobs.small_or_large, jobs.Number(number)) for number in range(120)]
    with driven(executor, store, *roots) as (plan, _):
        # Both GPUs are full before a held job may end, so that neither takes the other's jobs.
        wait_until(lambda: len(list(start_folder.glob("began-*"))) == 2 + 4)
        (start_folder / "go").touch()
    rows = [store.read(key).to_pylist()[0] for key in plan.roots["summary"]]
    assert {name: {row["sharers"] for row in rows if row["type"] == name} for name in ("T4", "A100")} == {
        "T4": {1, 2},
        "A100": {1, 4},
    }


def test_growing_cluster_requests_gpus_for_the_plan(
    join: Join,
    open_executor: Callable[[], RayExecutor],
    ray_cluster: Any,
    start_folder: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 60 jobs, 16 are measured. The others make 11 stacks, four per GPU, and justify more GPUs than exist."""
    monkeypatch.setattr("orchestrator.executors.gpu_packing.WORTH_SECONDS", 1e-9)
    join(num_gpus=1, labels={"ray.io/node-group": "gpu"})
    executor = open_executor()
    assert executor.growing
    with driven(executor, store, *(Job(jobs.small_or_large, jobs.Number(number)) for number in range(60))):
        wait_until(lambda: wanted_gpus(ray_cluster.address) == [0.25] * (3 * 4 - 4))
        (start_folder / "go").touch()
    wait_until(lambda: wanted_gpus(ray_cluster.address) == [])
