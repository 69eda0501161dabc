"""Ray's own ways to fail, each made to happen on real clusters."""

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
from orchestrator.executors.calls import Done, Finished, Lost
from orchestrator.executors.gpu_packing import SHARERS, gpu_fraction
from orchestrator.executors.ray import ROOT, RayExecutor
from orchestrator.planning.plan import Plan
from orchestrator.scheduling.driver import Driver
from orchestrator.scheduling.stop import Stop
from orchestrator.store import Store, open_store
from tasks.contract.job import Job
from tests.orchestrator.executors import jobs
from tests.orchestrator.executors.jobs import call, key_of
from tests.orchestrator.executors.test_executors import drain


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


@pytest.fixture
def executor(ray_cluster: Any, store: Store) -> Iterator[RayExecutor]:
    opened = RayExecutor(store.location, address=ray_cluster.address)
    yield opened
    opened.close()


def outcomes(finished: list[Finished]) -> list[Any]:
    return [outcome for each in finished for outcome in each.outcomes]


def test_a_sigterm_while_ray_connects_counts_as_ctrl_c(
    ray_cluster: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*_: object, **__: object) -> None:
        """What ray.init does first, and then the signal, which in ray.init has a second's chance to come."""
        set_sigterm_handler(lambda number, _frame: sys.exit(number))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("ray.init", connect)
    with pytest.raises(KeyboardInterrupt):
        RayExecutor(store.location, address=ray_cluster.address)
    assert before is signal.getsignal(signal.SIGTERM)


def test_sigterm_is_handled_after_the_connection_too(ray_cluster: Any, store: Store) -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        RayExecutor(store.location, address=ray_cluster.address).close()
        status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
        assert int(status["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1  # else it would end the process by itself
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_worker_that_dies_takes_only_its_own_call_with_it(executor: RayExecutor) -> None:
    executor.submit(call("die", 1.0, 2.0, first=1))
    executor.submit(call("double", 1.0, first=3))
    found = {outcome.key: outcome for outcome in outcomes(drain(executor, 2))}
    assert Lost(key_of(1), "its worker process died", died=True) == found[key_of(1)]
    assert Lost(key_of(2), "its worker process died", died=True) == found[key_of(2)]
    assert isinstance(found[key_of(3)], Done)


def test_a_worker_whose_device_broke_is_replaced(executor: RayExecutor) -> None:
    executor.submit(call("break_the_device", 1.0, first=1))
    assert [Lost(key_of(1), "its worker process died", died=True)] == outcomes(drain(executor, 1))


def test_workers_are_other_processes_with_one_thread_each_and_the_drivers_settings(
    ray_cluster: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAM_DATA", "/somewhere")
    handler = signal.getsignal(signal.SIGTERM)
    executor = RayExecutor(store.location, address=ray_cluster.address)
    try:
        assert handler is signal.getsignal(signal.SIGTERM)
        executor.submit(call("surroundings", 1.0))
        drain(executor, 1)
    finally:
        executor.close()
    (row,) = store.read(key_of(1)).to_pylist()
    assert row["pid"] != os.getpid()
    assert [line for line in row["environment"] if line.startswith(("ENGRAM_DATA", "MKL_NUM", "OMP_NUM"))] == [
        "ENGRAM_DATA=/somewhere",
        "MKL_NUM_THREADS=1",
        "OMP_NUM_THREADS=1",
    ]


def test_a_lost_node_is_not_its_jobs_fault(
    ray_cluster: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 0.2)
    monkeypatch.setenv("ENGRAM_TOLD", str(tmp_path))
    node = ray_cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    executor = RayExecutor(store.location, address=ray_cluster.address)
    try:
        assert executor.slots == 3
        for number in (1, 2, 3):  # one per CPU, so one of them is on the second node
            executor.submit(call("until", number, first=number))
        wait_until(lambda: len(list(tmp_path.glob("began-*"))) == 3)
        ray_cluster.remove_node(node, allow_graceful=False)
        found = []
        while not found:  # the lost one comes first: the others wait
            found = outcomes(executor.wait(1.0))
        (tmp_path / "go").touch()
        found += outcomes(drain(executor, 2))
        lost = [outcome for outcome in found if isinstance(outcome, Lost)]
        assert [(outcome.cause, outcome.died) for outcome in lost] == [("its node went away", False)]
        assert sum(isinstance(outcome, Done) for outcome in found) == 2
        executor.submit(call("double", 1.0, first=4))
        assert [Done] == [type(outcome) for outcome in outcomes(drain(executor, 1))]
        wait_until(lambda: list(executor.wait(0.1)) == [] and executor.slots == 2)
    finally:
        executor.close()
        if node in ray_cluster.worker_nodes:
            ray_cluster.remove_node(node)


@pytest.fixture
def holding(ray_cluster: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayExecutor]:
    """An executor with four calls that wait for `go`, of which two have begun: there are places for two."""
    monkeypatch.setenv("ENGRAM_TOLD", str(tmp_path))
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 3600.0)
    opened = RayExecutor(store.location, address=ray_cluster.address)
    for number in range(1, 5):
        opened.submit(call("until", number, first=number))
    wait_until(lambda: len(list(tmp_path.glob("began-*"))) == 2)
    yield opened
    opened.cancel()
    opened.close()


def test_once_it_is_halted_nothing_begins_and_what_runs_goes_on(holding: RayExecutor, tmp_path: Path) -> None:
    holding.halt()
    wait_until(lambda: list(holding.wait(0.1)) == [] and holding.pending == 2)
    (tmp_path / "go").touch()
    found = outcomes(drain(holding, 2))
    assert [Done, Done] == [type(outcome) for outcome in found]
    assert {f"began-{int(outcome.key, 16)}" for outcome in found} == {path.name for path in tmp_path.glob("began-*")}
    assert holding.pending == 0


@pytest.mark.parametrize("own", [True, False])
def test_a_call_that_is_ended_comes_back_as_lost_and_the_others_go_on(
    holding: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.BEGUN_SECONDS", 0.0)
    monkeypatch.setattr(holding, "_is_private", own)  # whether others may be using the cluster
    (one, seconds), (other, _) = holding.running()
    assert (one.number, other.number) == (1, 2)
    assert seconds >= 0.0
    found: list[Any] = []

    def lost() -> bool:
        holding.end(one, "it was ended")
        found.extend(outcomes(list(holding.wait(0.1))))
        return bool(found)

    wait_until(lost)
    assert [Lost(key_of(1), "it was ended", died=True)] == found
    assert [each.number for each, _ in holding.running()] == [2, 3]
    (tmp_path / "go").touch()
    assert [Done] * 3 == [type(outcome) for outcome in outcomes(drain(holding, 3))]


def test_a_call_that_had_not_begun_when_it_was_to_be_ended_is_sent_again(holding: RayExecutor, tmp_path: Path) -> None:
    holding._cpu_count = 4  # as it would be if others took two of them
    third = holding.running()[2][0]
    holding.end(third, "it was ended")
    assert list(holding.wait(1.0)) == []
    assert [each.number for each, _ in holding.running()] == [1, 2, 4, 3]
    (tmp_path / "go").touch()
    assert [Done] * 4 == [type(outcome) for outcome in outcomes(drain(holding, 4))]


def test_a_call_whose_worker_does_not_even_end_is_given_up(
    holding: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.END_SECONDS", 0.0)
    monkeypatch.setattr("ray.cancel", lambda reference, force: None)  # as if it never heard
    monkeypatch.setattr(holding, "_is_private", True)
    one = holding.running()[0][0]
    holding.end(one, "it was ended")
    assert [Lost(key_of(1), "it was ended", died=True)] == outcomes(list(holding.wait(0.0)))
    monkeypatch.undo()


def test_a_job_that_hangs_is_ended_sent_again_and_set_aside_in_the_end(
    ray_cluster: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.BEGUN_SECONDS", 0.0)
    monkeypatch.setattr("orchestrator.scheduling.driver.POLL", 0.05)
    monkeypatch.setenv("ENGRAM_TOLD", str(tmp_path))
    plan = Plan.from_roots({"summary": Job(jobs.until, jobs.Number(7))})
    executor = RayExecutor(store.location, address=ray_cluster.address)
    events: list[Mapping[str, Any]] = []
    driver = Driver(store, lambda: executor, events.extend, Stop(), together=1, timeout=1.0)
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


def test_a_wrong_token_is_said_at_once(ray_cluster: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    with pytest.raises(ClusterError, match="refuses the token; set RAY_AUTH_MODE=token"):
        RayExecutor(store.location, address=ray_cluster.address)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where jobs that are held say that they have begun; named after it, an executor lets its workers know."""
    monkeypatch.setenv("ENGRAM_TOLD", str(tmp_path))
    return tmp_path


@pytest.fixture
def gpus(ray_cluster: Any) -> Iterator[None]:
    """For a while there is a machine with 2 GPUs, as far as Ray can tell, and 1 processor."""
    node = ray_cluster.add_node(num_cpus=1, num_gpus=2, object_store_memory=80 * 2**20)
    yield
    ray_cluster.remove_node(node)


@pytest.mark.slow
@pytest.mark.usefixtures("gpus")
def test_calls_on_gpus_spread_over_all_and_others_run_beside_them(
    told: Path, executor: RayExecutor, store: Store
) -> None:
    assert (executor.gpus, executor.sharers) == (2, SHARERS)
    for number in range(1, 5):
        executor.submit(replace(call("held_on_gpu", number, first=number), gpus=1.0))
    wait_until(lambda: len(list(told.glob("began-*"))) == 2)
    for number in range(5, 9):
        executor.submit(call("on_cpu", 0.0, first=number))
    assert len(drain(executor, 4)) == 4  # while both GPUs are held
    assert len(list(told.glob("began-*"))) == 2
    (told / "go").touch()
    assert len(drain(executor, 4)) == 4
    rows = [store.read(key_of(number)).to_pylist()[0] for number in range(1, 9)]
    on_gpu, beside = rows[:4], rows[4:]
    assert {"0", "1"} == {row["gpu"] for row in on_gpu}
    assert all(most_at_once(row for row in on_gpu if row["gpu"] == gpu) == 1 for gpu in "01")
    assert most_at_once(on_gpu) == 2
    assert {""} == {row["gpu"] for row in beside}  # they can take none
    assert len({row["pid"] for row in on_gpu}) == 4  # CUDA stays with the first GPU that a process has used


@pytest.mark.slow
@pytest.mark.usefixtures("gpus")
def test_as_many_calls_share_a_gpu_as_their_parts_say(told: Path, executor: RayExecutor, store: Store) -> None:
    for number in range(1, 11):
        executor.submit(replace(call("held_on_gpu", number, first=number), gpus=gpu_fraction(3), sharers=3))
    wait_until(lambda: len(list(told.glob("began-*"))) == 6)
    (told / "go").touch()
    assert len(drain(executor, 10)) == 10
    rows = [store.read(key_of(number)).to_pylist()[0] for number in range(1, 11)]
    assert [most_at_once(row for row in rows if row["gpu"] == gpu) for gpu in "01"] == [3, 3]
    assert {3} == {row["sharers"] for row in rows}


@pytest.mark.usefixtures("gpus")
def test_a_driver_fills_gpus_by_what_their_calls_measured(ray_cluster: Any, store: Store) -> None:
    """Half busy alone, so two share each; the jobs of a call follow from its stack; other jobs run meanwhile."""
    trained = [Job(jobs.on_gpu, jobs.Number(0.02 + i / 1e4)) for i in range(60)]
    plan = Plan.from_roots(
        {"summary": tuple(trained), "others": tuple(Job(jobs.on_cpu, jobs.Number(i)) for i in (1, 2))}
    )
    executor = RayExecutor(store.location, address=ray_cluster.address)
    driver = Driver(store, lambda: executor, lambda event: None, Stop())
    try:
        driver.drive(plan, set())
    finally:
        driver.close()
    assert set(plan.jobs) == driver.progress.computed
    rows = [store.read(key).to_pylist()[0] for key in plan.roots["summary"]]
    assert {"0", "1"} == {row["gpu"] for row in rows}
    assert {30} == {store.record(plan.roots["summary"][i])["together"] for i in (0, 30)}
    assert {"stack"} == {store.record(key)["way"] for key in plan.roots["summary"]}
    others = [store.read(key).to_pylist()[0] for key in plan.roots["others"]]
    assert min(row["began"] for row in others) < max(row["ended"] for row in rows)


@pytest.fixture
def autoscaled(ray_cluster: Any) -> Iterator[Any]:
    """For a while the cluster has a machine as autoscalers start them, with neither processor nor GPU."""
    node = ray_cluster.add_node(num_cpus=0, labels={"ray.io/node-group": "small"}, object_store_memory=80 * 2**20)
    yield ray_cluster
    ray_cluster.remove_node(node)


@contextlib.contextmanager
def driven(executor: RayExecutor, store: Store, *roots: Job) -> Iterator[tuple[Plan, list[str]]]:
    """A driver of these jobs in a thread of its own, and what it says; it has ended afterwards."""
    plan, said = Plan.from_roots({"summary": roots}), []
    stop = Stop()
    driver = Driver(
        store, lambda: executor, lambda events: said.extend(event.get("line", "") for event in events), stop
    )
    thread = threading.Thread(target=driver.drive, args=(plan, set()))
    thread.start()
    try:
        yield plan, said
        wait_until(lambda: not thread.is_alive())
    finally:
        stop.ask("the test is over")
        thread.join()
        driver.close()


def wanted_gpus(address: str) -> list[float]:
    """How much of a GPU each call that waits asks Ray for; 0 for those that ask for none."""
    state = get_cluster_resource_state(GcsClient(address=address))
    asked = [(each.request.resources_bundle.get("GPU", 0.0), each.count) for each in state.pending_resource_requests]
    return [part for part, count in asked for _ in range(count)]


def test_trainings_wait_for_a_gpu_that_an_autoscaler_may_bring_and_for_the_next_when_it_has_gone(
    autoscaled: Any, told: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 0.2)
    monkeypatch.setattr("orchestrator.scheduling.waiting.OTHERS_SECONDS", 0.2)
    gpu = {"num_cpus": 0, "num_gpus": 1, "object_store_memory": 80 * 2**20}
    executor = RayExecutor(store.location, address=autoscaled.address)
    with driven(executor, store, Job(jobs.held_on_gpu, jobs.Number(1))) as (plan, said):
        wait_until(lambda: wanted_gpus(autoscaled.address) == [1.0] and any("no GPU" in line for line in said))
        assert executor.running() == []  # so no time limit runs
        node = autoscaled.add_node(**gpu)
        wait_until((told / "began-1").exists)
        (told / "began-1").unlink()
        autoscaled.remove_node(node, allow_graceful=False)
        wait_until(lambda: wanted_gpus(autoscaled.address) == [1.0])
        node = autoscaled.add_node(**gpu)
        wait_until((told / "began-1").exists)
        (told / "go").touch()
    autoscaled.remove_node(node)
    assert store.read(plan.roots["summary"][0])["gpu"][0].as_py() == "0"
    assert any("they begin when a machine with a GPU joins; with `--gpus none`" in line for line in said)


def test_trainings_take_processors_once_the_autoscaler_says_that_none_of_its_machines_has_a_gpu(
    autoscaled: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 0.2)
    client = GcsClient(address=autoscaled.address)
    executor = RayExecutor(store.location, address=autoscaled.address)
    with driven(executor, store, Job(jobs.on_gpu, jobs.Number(0.0))) as (plan, _):
        wait_until(lambda: wanted_gpus(autoscaled.address) == [1.0])
        refused = ResourceRequest(resources_bundle={"GPU": 1.0})
        said = AutoscalingState(autoscaler_state_version=1, infeasible_resource_requests=[refused])
        client.report_autoscaling_state(said.SerializeToString())
    client.report_autoscaling_state(AutoscalingState(autoscaler_state_version=2).SerializeToString())
    assert store.read(plan.roots["summary"][0])["gpu"][0].as_py() == ""


def test_trainings_that_have_not_begun_go_to_the_first_gpu_that_joins(
    ray_cluster: Any, told: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executors.ray.LOOK_SECONDS", 0.2)
    executor = RayExecutor(store.location, address=ray_cluster.address)
    assert executor.gpus == 0
    with driven(executor, store, *(Job(jobs.held_on_gpu, jobs.Number(number)) for number in range(4))) as (plan, _):
        wait_until(lambda: len(list(told.glob("began-*"))) == 2)
        node = ray_cluster.add_node(num_cpus=0, num_gpus=1, object_store_memory=80 * 2**20)
        wait_until(lambda: len(list(told.glob("began-*"))) == 3)
        (told / "go").touch()
    ray_cluster.remove_node(node)
    assert sorted(store.read(key)["gpu"][0].as_py() for key in plan.roots["summary"]) == ["", "", "0", "0"]


@pytest.mark.usefixtures("gpus")
def test_no_training_asks_for_a_gpu_where_the_user_wants_none(ray_cluster: Any, store: Store) -> None:
    executor = RayExecutor(store.location, address=ray_cluster.address, gpus="none")
    with driven(executor, store, Job(jobs.on_gpu, jobs.Number(0.0))) as (plan, _):
        assert executor.gpus == 0
    assert store.read(plan.roots["summary"][0])["gpu"][0].as_py() == ""


def test_a_cluster_without_an_autoscaler_is_waited_for_on_demand(ray_cluster: Any, store: Store) -> None:
    executor = RayExecutor(store.location, address=ray_cluster.address, gpus="wait")
    assert executor.gpus == 1
    executor.close()


def most_at_once(rows: Iterable[Mapping[str, Any]]) -> int:
    """Of jobs with a beginning and an end, as many as ran at one time."""
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
    """A driver with a cluster of its own, in a folder full of modules named like ours, with a home of its own."""
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
    from orchestrator.executors.guard import marked_processes

    return len(list(marked_processes(mark)))


def listening(mark: str) -> set[str]:
    """The addresses on which a cluster's processes listen."""
    from orchestrator.executors.guard import family

    sockets = set()
    for file in itertools.chain.from_iterable(Path(f"/proc/{pid}/fd").glob("*") for pid in family(mark)):
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(file))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:  # LISTEN
                # 32-bit words in the machine's byte order; an IPv4 address is mapped into the last word of IPv6.
                words = bytes.fromhex(fields[1].partition(":")[0])
                mapped = len(words) == 4 or words[:12] == bytes(8) + b"\xff\xff\0\0"
                found.add(".".join(map(str, reversed(words[-4:]))) if mapped else words.hex())
    return found


@pytest.mark.slow
def test_a_cluster_of_our_own_is_silent_writes_nowhere_else_and_does_not_outlive_a_killed_driver(
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
    assert {"127.0.0.1"} == listening(answer["mark"])
    driver.kill()
    out, err = driver.communicate(timeout=HANGING)
    wait_until(lambda: left_over(answer["mark"]) == 0)
    assert (out, err) == ("", "")
    assert sorted((tmp_path / "home").rglob("*")) == []
    assert sorted(path.name for path in (tmp_path / "here").rglob("*")) == ["orchestrator.py", "tasks.py"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["killed head", "stopped head"])
def test_a_cluster_without_its_head_ends_the_run_with_one_line(tmp_path: Path, ending: str) -> None:
    driver = start(tmp_path, ending)
    out, err = driver.communicate(timeout=HANGING)
    assert (driver.returncode, err) == (0, "")
    said = out.splitlines()
    assert len(said) == 2
    assert said[1].startswith("the head of the Ray cluster at ")
    assert left_over(json.loads(said[0])["mark"]) == 0  # closing in good order takes the rest along
