"""Failures specific to Ray, on real clusters."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import HANGING, wait_until

pytest.importorskip("ray")

from ray._private.utils import set_sigterm_handler
from ray._raylet import GcsClient
from ray.autoscaler.v2.sdk import get_cluster_resource_state
from ray.core.generated.autoscaler_pb2 import AutoscalingState, ResourceRequest

from orchestrator.errors import ClusterError
from orchestrator.executors.calls import Done, Lost
from orchestrator.executors.gpu_packing import SHARERS, gpu_fraction
from orchestrator.executors.ray import ROOT, RayExecutor
from orchestrator.planning.plan import Plan
from orchestrator.scheduling.driver import Driver
from orchestrator.scheduling.stop import Stop
from orchestrator.store import Store, open_store
from tasks.contract.job import Job
from tests.orchestrator.executors import jobs
from tests.orchestrator.executors.jobs import call, key_of
from tests.orchestrator.executors.test_executors import drain, outcomes


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


@pytest.fixture
def executor(ray_cluster: Any, store: Store) -> Iterator[RayExecutor]:
    opened = RayExecutor(store.location, address=ray_cluster.address)
    yield opened
    opened.close()


def test_sigterm_while_connecting_counts_as_interrupt(
    ray_cluster: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*_: object, **__: object) -> None:
        """The first step of ray.init, and then the signal, which in ray.init has one second to arrive."""
        set_sigterm_handler(lambda number, _frame: sys.exit(number))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("ray.init", connect)
    with pytest.raises(KeyboardInterrupt):
        RayExecutor(store.location, address=ray_cluster.address)
    assert before is signal.getsignal(signal.SIGTERM)


@pytest.mark.parametrize(("problem", "starts"), [("The current node timed out during startup.", 3), ("no memory", 1)])
def test_slow_private_cluster_is_started_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, problem: str, starts: int
) -> None:
    attempts: list[str] = []

    def start(address: str, **_: object) -> None:
        attempts.append(address)
        raise RuntimeError(problem)

    monkeypatch.setattr("ray.init", start)
    with pytest.raises(ClusterError, match=problem):
        RayExecutor(store.location, address="local")
    assert attempts == ["local"] * starts


def test_sigterm_handler_stays_after_connecting(ray_cluster: Any, store: Store) -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        RayExecutor(store.location, address=ray_cluster.address).close()
        status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
        assert int(status["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1  # otherwise it would end the process
    finally:
        signal.signal(signal.SIGTERM, before)


def test_lost_node_is_not_its_jobs_fault(
    ray_cluster: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 0.2)
    monkeypatch.setenv("ENGRAM_TOLD", str(tmp_path))
    node = ray_cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    executor = RayExecutor(store.location, address=ray_cluster.address)
    try:
        assert executor.slots == 3
        for number in (1, 2, 3):  # one per processor, so the second node has one
            executor.submit(call("until", number, first=number))
        wait_until(lambda: len(list(tmp_path.glob("began-*"))) == 3)
        ray_cluster.remove_node(node, allow_graceful=False)
        all_outcomes = []
        while not all_outcomes:  # the lost one comes first: the others wait
            all_outcomes = outcomes(executor.wait(1.0))
        (tmp_path / "go").touch()
        all_outcomes += outcomes(drain(executor, 2))
        lost_outcomes = [outcome for outcome in all_outcomes if isinstance(outcome, Lost)]
        assert [(outcome.cause, outcome.died) for outcome in lost_outcomes] == [("its node went away", False)]
        assert sum(isinstance(outcome, Done) for outcome in all_outcomes) == 2
        executor.submit(call("double", 1.0, first=4))
        assert [Done] == [type(outcome) for outcome in outcomes(drain(executor, 1))]
        wait_until(lambda: list(executor.wait(0.1)) == [] and executor.slots == 2)
    finally:
        executor.close()
        if node in ray_cluster.worker_nodes:
            ray_cluster.remove_node(node)


@pytest.fixture
def holding(ray_cluster: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayExecutor]:
    """An executor with four calls that wait for `go`. Two have begun, one per slot."""
    monkeypatch.setenv("ENGRAM_TOLD", str(tmp_path))
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 3600.0)
    opened = RayExecutor(store.location, address=ray_cluster.address)
    for number in range(1, 5):
        opened.submit(call("until", number, first=number))
    wait_until(lambda: len(list(tmp_path.glob("began-*"))) == 2)
    yield opened
    opened.cancel()
    opened.close()


def test_ended_call_that_had_not_begun_is_resent(holding: RayExecutor, tmp_path: Path) -> None:
    holding._cpu_count = 4  # as if other users occupied two
    third = holding.running()[2][0]
    holding.end(third, "it was ended")
    assert list(holding.wait(1.0)) == []
    assert [running_call.number for running_call, _ in holding.running()] == [1, 2, 4, 3]
    (tmp_path / "go").touch()
    assert [Done] * 4 == [type(outcome) for outcome in outcomes(drain(holding, 4))]


def test_call_whose_worker_ignores_ending_is_dropped(holding: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.END_SECONDS", 0.0)
    monkeypatch.setattr("ray.cancel", lambda reference, force: None)  # as if it never heard
    monkeypatch.setattr(holding, "_is_private", True)
    one = holding.running()[0][0]
    holding.end(one, "it was ended")
    assert [Lost(key_of(1), "it was ended", died=True)] == outcomes(list(holding.wait(0.0)))
    monkeypatch.undo()


def test_wrong_token_is_reported_at_once(ray_cluster: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    with pytest.raises(ClusterError, match="refuses the token; set RAY_AUTH_MODE=token"):
        RayExecutor(store.location, address=ray_cluster.address)


@pytest.fixture
def start_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which held jobs report their start. Workers get it from executors opened afterwards."""
    monkeypatch.setenv("ENGRAM_TOLD", str(tmp_path))
    return tmp_path


@pytest.fixture
def gpus(ray_cluster: Any) -> Iterator[None]:
    """A machine that Ray believes to have 2 GPUs, with 1 processor."""
    node = ray_cluster.add_node(num_cpus=1, num_gpus=2, object_store_memory=80 * 2**20)
    yield
    ray_cluster.remove_node(node)


@pytest.mark.slow
@pytest.mark.usefixtures("gpus")
def test_gpu_calls_spread_and_others_run_meanwhile(start_folder: Path, executor: RayExecutor, store: Store) -> None:
    assert executor.gpus == 2
    assert executor.sharers == SHARERS
    for number in range(1, 5):
        executor.submit(replace(call("held_on_gpu", number, first=number), gpus=1.0))
    wait_until(lambda: len(list(start_folder.glob("began-*"))) == 2)
    for number in range(5, 9):
        executor.submit(call("on_cpu", 0.0, first=number))
    assert len(drain(executor, 4)) == 4  # while both GPUs are held
    assert len(list(start_folder.glob("began-*"))) == 2
    (start_folder / "go").touch()
    assert len(drain(executor, 4)) == 4
    rows = [store.read(key_of(number)).to_pylist()[0] for number in range(1, 9)]
    on_gpu = rows[:4]
    on_cpu = rows[4:]
    assert {row["gpu"] for row in on_gpu} == {"0", "1"}
    assert all(most_at_once(row for row in on_gpu if row["gpu"] == gpu) == 1 for gpu in "01")
    assert most_at_once(on_gpu) == 2
    # they can take none
    assert {row["gpu"] for row in on_cpu} == {""}
    assert len({row["pid"] for row in on_gpu}) == 4  # CUDA stays with the first GPU that a process has used


@pytest.mark.slow
@pytest.mark.usefixtures("gpus")
def test_gpu_is_shared_by_its_calls_parts(start_folder: Path, executor: RayExecutor, store: Store) -> None:
    for number in range(1, 11):
        executor.submit(replace(call("held_on_gpu", number, first=number), gpus=gpu_fraction(3), sharers=3))
    wait_until(lambda: len(list(start_folder.glob("began-*"))) == 6)
    (start_folder / "go").touch()
    assert len(drain(executor, 10)) == 10
    rows = [store.read(key_of(number)).to_pylist()[0] for number in range(1, 11)]
    assert [most_at_once(row for row in rows if row["gpu"] == gpu) for gpu in "01"] == [3, 3]
    assert {row["sharers"] for row in rows} == {3}


@pytest.mark.usefixtures("gpus")
def test_driver_fills_gpus_by_measurements(ray_cluster: Any, store: Store) -> None:
    """Each is half busy, so two share a GPU; call sizes follow from the stack; other jobs run at the same time."""
    trainings = [Job(jobs.on_gpu, jobs.Number(0.02 + i / 1e4)) for i in range(60)]
    plan = Plan.from_roots(
        {"summary": tuple(trainings), "others": tuple(Job(jobs.on_cpu, jobs.Number(i)) for i in (1, 2))}
    )
    executor = RayExecutor(store.location, address=ray_cluster.address)
    driver = Driver(store, lambda: executor, lambda event: None, Stop())
    try:
        driver.drive(plan, set())
    finally:
        driver.close()
    assert set(plan.jobs) == driver.progress.computed
    rows = [store.read(key).to_pylist()[0] for key in plan.roots["summary"]]
    assert {row["gpu"] for row in rows} == {"0", "1"}
    assert {store.record(plan.roots["summary"][i])["together"] for i in (0, 30)} == {30}
    assert {store.record(key)["way"] for key in plan.roots["summary"]} == {"stack"}
    cpu_rows = [store.read(key).to_pylist()[0] for key in plan.roots["others"]]
    assert min(row["began"] for row in cpu_rows) < max(row["ended"] for row in rows)


@pytest.fixture
def autoscaled(ray_cluster: Any) -> Iterator[Any]:
    """A cluster with a machine like those of autoscalers, with neither processor nor GPU."""
    node = ray_cluster.add_node(num_cpus=0, labels={"ray.io/node-group": "small"}, object_store_memory=80 * 2**20)
    yield ray_cluster
    ray_cluster.remove_node(node)


@contextlib.contextmanager
def driven(executor: RayExecutor, store: Store, *roots: Job) -> Iterator[tuple[Plan, list[str]]]:
    """A driver of these jobs in a thread, and its messages. It has ended afterwards."""
    plan = Plan.from_roots({"summary": roots})
    messages = []
    stop = Stop()
    driver = Driver(
        store, lambda: executor, lambda events: messages.extend(event.get("line", "") for event in events), stop
    )
    thread = threading.Thread(target=driver.drive, args=(plan, set()))
    thread.start()
    try:
        yield plan, messages
        wait_until(lambda: not thread.is_alive())
    finally:
        stop.ask("the test is over")
        thread.join()
        driver.close()


def wanted_gpus(address: str) -> list[float]:
    """The share of a GPU that each waiting call requests from Ray, 0 if it needs none."""
    state = get_cluster_resource_state(GcsClient(address=address))
    requests = []
    for request in state.pending_resource_requests:
        requests.append((request.request.resources_bundle.get("GPU", 0.0), request.count))
    return [part for part, count in requests for _ in range(count)]


def test_trainings_wait_for_autoscaled_gpus(
    autoscaled: Any, start_folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 0.2)
    monkeypatch.setattr("orchestrator.scheduling.waiting.OTHERS_SECONDS", 0.2)
    gpu = {"num_cpus": 0, "num_gpus": 1, "object_store_memory": 80 * 2**20}
    executor = RayExecutor(store.location, address=autoscaled.address)
    with driven(executor, store, Job(jobs.held_on_gpu, jobs.Number(1))) as (plan, messages):
        wait_until(
            lambda: wanted_gpus(autoscaled.address) == [1.0] and any("for a GPU, which" in line for line in messages)
        )
        assert executor.running() == []  # so no time limit runs
        node = autoscaled.add_node(**gpu)
        wait_until((start_folder / "began-1").exists)
        (start_folder / "began-1").unlink()
        autoscaled.remove_node(node, allow_graceful=False)
        wait_until(lambda: wanted_gpus(autoscaled.address) == [1.0])
        node = autoscaled.add_node(**gpu)
        wait_until((start_folder / "began-1").exists)
        (start_folder / "go").touch()
    autoscaled.remove_node(node)
    assert store.read(plan.roots["summary"][0])["gpu"][0].as_py() == "0"
    assert any("they begin when a machine with a GPU joins; with `--gpus none`" in line for line in messages)


def test_trainings_use_processors_if_gpus_are_infeasible(
    autoscaled: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 0.2)
    client = GcsClient(address=autoscaled.address)
    executor = RayExecutor(store.location, address=autoscaled.address)
    with driven(executor, store, Job(jobs.on_gpu, jobs.Number(0.0))) as (plan, _):
        wait_until(lambda: wanted_gpus(autoscaled.address) == [1.0])
        refused = ResourceRequest(resources_bundle={"GPU": 1.0})
        state = AutoscalingState(autoscaler_state_version=1, infeasible_resource_requests=[refused])
        client.report_autoscaling_state(state.SerializeToString())
    client.report_autoscaling_state(AutoscalingState(autoscaler_state_version=2).SerializeToString())
    assert store.read(plan.roots["summary"][0])["gpu"][0].as_py() == ""


def test_waiting_trainings_use_the_first_joining_gpu(
    ray_cluster: Any, start_folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 0.2)
    executor = RayExecutor(store.location, address=ray_cluster.address)
    assert executor.gpus == 0
    with driven(executor, store, *(Job(jobs.held_on_gpu, jobs.Number(number)) for number in range(4))) as (plan, _):
        wait_until(lambda: len(list(start_folder.glob("began-*"))) == 2)
        node = ray_cluster.add_node(num_cpus=0, num_gpus=1, object_store_memory=80 * 2**20)
        wait_until(lambda: len(list(start_folder.glob("began-*"))) == 3)
        (start_folder / "go").touch()
    ray_cluster.remove_node(node)
    assert sorted(store.read(key)["gpu"][0].as_py() for key in plan.roots["summary"]) == ["", "", "0", "0"]


@pytest.mark.usefixtures("gpus")
def test_no_training_requests_unwanted_gpus(ray_cluster: Any, store: Store) -> None:
    executor = RayExecutor(store.location, address=ray_cluster.address, gpus="none")
    with driven(executor, store, Job(jobs.on_gpu, jobs.Number(0.0))) as (plan, _):
        assert executor.gpus == 0
    assert store.read(plan.roots["summary"][0])["gpu"][0].as_py() == ""


def test_gpus_can_be_awaited_without_autoscaler(ray_cluster: Any, store: Store) -> None:
    executor = RayExecutor(store.location, address=ray_cluster.address, gpus="wait")
    assert executor.gpus == 1
    executor.close()


def most_at_once(rows: Iterable[Mapping[str, Any]]) -> int:
    """The largest number of jobs that ran at one time."""
    moments = sorted([moment for row in rows for moment in ((row["began"], 1), (row["ended"], -1))])
    return max(itertools.accumulate(change for _, change in moments))


DRIVER = """
import json, os, signal, subprocess, sys, time
from orchestrator.executors.ray import RayExecutor
from orchestrator.errors import ClusterError
from orchestrator.store import open_store
from tests.orchestrator.executors.jobs import call, key_of
from tests.orchestrator.executors.test_executors import drain
from tests.support.waiting import wait_until
from tests.support.waiting import HANGING

store = open_store(sys.argv[1])
executor = RayExecutor(store.location, cpus=2)
for number, name in ((1, "double"), (2, "die"), (3, "surroundings"), (4, "surroundings")):
    executor.submit(call(name, 1.0, first=number))
outcomes = {outcome.key[-1]: type(outcome).__name__ for each in drain(executor, 4) for outcome in each.outcomes}
(row,) = store.read(key_of(3)).to_pylist()
(mark,) = [line.partition("=")[2] for line in row["environment"] if line.startswith("ENGRAM_CLUSTER=")]
print(json.dumps({"mark": mark, "outcomes": outcomes}), flush=True)
for number in (5, 6):
    executor.submit(call("sleep", 60.0, first=number))
"""
ENDINGS = {
    "killed": "time.sleep(60)",
    # The head dies just after it was seen: for some milliseconds the port of a killed process is still open.
    "killed head": """
from orchestrator.executors import ray as ours
from orchestrator.executors.connection import reachable
seen = iter([True])
ours.reachable = lambda *at, seconds: next(seen, None) or reachable(*at, seconds=seconds)
behead("-KILL")
""",
    "stopped head": """
from orchestrator.executors import ray as ours
ours.ANSWER_SECONDS, ours.HEAD_SECONDS = 1.0, 2.0
behead("-STOP")
""",
}
BEHEAD = """
def behead(how):
    subprocess.run(["pkill", how, "-P", str(os.getpid()), "gcs_server"], check=True)
    try:
        drain(executor, 2)
    except ClusterError as error:
        print(error, flush=True)
    executor.close()
"""


def start(folder: Path, ending: str) -> subprocess.Popen[str]:
    """A driver with a private cluster, in a folder of modules that shadow Engram's names, and a home folder."""
    for name in ("home", "here", "bin"):
        (folder / name).mkdir()
    for name in ("tasks.py", "orchestrator.py"):
        (folder / "here" / name).write_text("raise RuntimeError('the wrong module')\n")
    script = folder / "bin" / "driver.py"
    script.write_text(DRIVER + BEHEAD + ENDINGS[ending])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "ENGRAM_"))}
    environment |= {"HOME": str(folder / "home"), "PYTHONPATH": ROOT, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, str(script), str(folder / "store")],
        cwd=folder / "here",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_over(mark: str) -> int:
    from tasks.worker.process_guard import marked_processes

    return len(list(marked_processes(mark)))


def listening(mark: str) -> set[str]:
    """The addresses on which a cluster's processes listen."""
    from tasks.worker.process_guard import family

    sockets = set()
    for file in itertools.chain.from_iterable(Path(f"/proc/{pid}/fd").glob("*") for pid in family(mark)):
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(file))
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:  # LISTEN
                # 32-bit words in the machine's byte order; an IPv4 address is mapped into the last word of IPv6.
                words = bytes.fromhex(fields[1].partition(":")[0])
                mapped = len(words) == 4 or words[:12] == bytes(8) + b"\xff\xff\0\0"
                addresses.add(".".join(map(str, reversed(words[-4:]))) if mapped else words.hex())
    return addresses


@pytest.mark.slow
def test_private_cluster_is_isolated_and_ends_with_driver(
    tmp_path: Path,
) -> None:
    driver = start(tmp_path, "killed")
    assert driver.stdout is not None
    answer = json.loads(driver.stdout.readline())
    assert answer["outcomes"] == {"1": "Done", "2": "Lost", "3": "Done", "4": "Done"}
    (row,) = open_store(tmp_path / "store").read(key_of(3)).to_pylist()
    assert row["pid"] != driver.pid
    assert os.nice(0) == row["nice"]
    assert "RAY_AUTH_MODE=token" in row["environment"]
    assert left_over(answer["mark"]) > 4
    assert listening(answer["mark"]) == {"127.0.0.1"}
    driver.kill()
    out, err = driver.communicate(timeout=HANGING)
    wait_until(lambda: left_over(answer["mark"]) == 0)
    assert out == ""
    assert err == ""
    assert sorted((tmp_path / "home").rglob("*")) == []
    assert sorted(path.name for path in (tmp_path / "here").rglob("*")) == ["orchestrator.py", "tasks.py"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["killed head", "stopped head"])
def test_cluster_without_head_ends_with_one_line(tmp_path: Path, ending: str) -> None:
    driver = start(tmp_path, ending)
    out, err = driver.communicate(timeout=HANGING)
    assert driver.returncode == 0
    assert err == ""
    lines = out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("the head of the Ray cluster at ")
    assert left_over(json.loads(lines[0])["mark"]) == 0  # closing ends the remaining processes
