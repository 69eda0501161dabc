""" """

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from ray import exceptions

from orchestrator.errors import ClusterError
from orchestrator.executors.cluster import (
    GPU_LABEL,
    MEMORY_GRAIN,
    OTHER,
    Machine,
    SentCall,
    calls_with_slots,
    gpu_selector,
    gpu_types,
    memory_to_ask,
    obstacle,
    reason,
)
from orchestrator.executors.connection import PREFACE, probe, reachable
from orchestrator.spec.specification import host_and_port
from tasks.contract.quantities import ByteCount
from tasks.contract.resources import Resources
from tests.orchestrator.executors.jobs import call
from tests.support.ports import free_port

Answer = Callable[[socket.socket], object]
GB = 2**30


def silence(connection: socket.socket) -> None:
    time.sleep(10.0)


def web_page(connection: socket.socket) -> None:
    connection.recv(100)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    connection.close()


def hanging_up(connection: socket.socket) -> None:
    connection.close()


def http2(connection: socket.socket) -> None:
    assert connection.recv(100) == PREFACE
    connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    connection.recv(100)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address where a server answers each connection as the parameter does."""
    answer: Answer = request.param
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            answer(connection)

    threading.Thread(target=serve, daemon=True).start()
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    listening.close()


@pytest.mark.parametrize("server", [silence, web_page, hanging_up], indirect=True)
def test_server_other_than_ray_is_reported(server: str) -> None:
    with pytest.raises(ClusterError, match=rf"the server at {server} is not Ray"):
        probe(server)


@pytest.mark.parametrize("server", [http2], indirect=True)
def test_grpc_server_is_accepted(server: str) -> None:
    probe(server)


def test_port_without_listener_is_reported_with_advice() -> None:
    port = free_port()
    assert not reachable("127.0.0.1", port)
    with pytest.raises(
        ClusterError, match=rf"no Ray cluster at 127.0.0.1:{port}: connection refused; check that it runs"
    ):
        probe(f"127.0.0.1:{port}")


def test_silent_host_times_out() -> None:
    # A full backlog drops further connections, as a firewall does.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        address = listening.getsockname()
        waiting = []
        for _ in range(4):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(address)
        with pytest.raises(ClusterError, match=r"no answer in 3 s|is not Ray|timed out"):
            probe(f"127.0.0.1:{address[1]}")
        for connection in waiting:
            connection.close()


def test_unknown_host_name_is_refused() -> None:
    with pytest.raises(ClusterError, match=r"no Ray cluster at nowhere\.invalid:6379"):
        probe("nowhere.invalid:6379")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("head:6379", ("head", 6379)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("[::1]:6379", ("::1", 6379)),
        ("ray://head:10001", ("head", 10001)),
        ("ray://head", ("head", 10001)),
    ],
)
def test_addresses_are_read_in_their_usual_forms(address: str, expected: tuple[str, int]) -> None:
    assert expected == host_and_port(address)


@pytest.mark.parametrize(
    "address",
    [
        *("", "head", "head:", ":6379", "head:port", "head:0", "head:65536", "http://h:1", "a b:1", "head:²", "head:٣"),
        *("a..b:1", "[::1", "[::1:6379", "x" * 64 + ":1", "x." * 150 + "x:1", "ray://", "ray://a b", "a\nb:1"),
    ],
)
def test_invalid_address_is_refused_with_valid_forms(address: str) -> None:
    with pytest.raises(ClusterError, match="is not the address of a Ray cluster; use HOST:PORT"):
        host_and_port(address)


def test_calls_run_in_order_within_slots() -> None:
    sent_calls = []
    for number in range(1, 5):
        sent_calls.append(SentCall(call("double", 1.0, first=number)))
    assert [(sent_call.number, seconds) for sent_call, seconds in calls_with_slots(sent_calls, 2, 0, now=10.0)] == [
        (1, 0.0),
        (2, 0.0),
    ]
    del sent_calls[0]
    assert [(sent_call.number, seconds) for sent_call, seconds in calls_with_slots(sent_calls, 2, 0, now=15.0)] == [
        (2, 5.0),
        (3, 0.0),
    ]


def test_gpu_calls_use_gpu_shares_and_no_processor() -> None:
    halves = []
    for number in range(1, 5):
        halves.append(SentCall(replace(call("on_gpu", 1.0, first=number), gpus=0.5)))
    sent_calls = [*halves, SentCall(call("double", 1.0, first=5)), SentCall(call("double", 1.0, first=6))]
    assert [sent_call.number for sent_call, _ in calls_with_slots(sent_calls, 1, 1, now=0.0)] == [1, 2, 5]
    assert [sent_call.number for sent_call, _ in calls_with_slots(sent_calls, 2, 0, now=0.0)] == [5, 6]


def test_stated_resources_limit_concurrent_calls() -> None:
    sent_calls = []
    for number, resources in enumerate(
        (Resources(2, 4), Resources(cpus=5), Resources(1), Resources(cpus=3), Resources())
    ):
        stated = replace(call("double", 1.0, first=number), gpus=float(resources.gpus), resources=resources)
        sent_calls.append(SentCall(stated, memory=GB))
    for slots, gpus, memory, expected in (
        (8, 2, math.inf, [0, 3, 4]),
        (8, 3, math.inf, [0, 2, 3, 4]),
        (9, 3, math.inf, [0, 1, 2]),
        (64, 8, 2 * GB, [0, 1]),
        (5, 1, math.inf, [1, 2]),
    ):
        calls = calls_with_slots(sent_calls, slots, gpus, 0.0, memory)
        assert [sent_call.number for sent_call, _ in calls] == expected


def machine(**resources: float) -> Machine:
    labels = {GPU_LABEL: "T4"} if resources.pop("t4", 0) else {}
    return Machine(resources, labels, "id", "name")


SMALL = machine(CPU=2, memory=1 * GB, GPU=1, t4=1)
LARGE = machine(CPU=64, memory=100 * GB)
OLD = machine(GPU=2, memory=8 * GB)


@pytest.mark.parametrize(
    ("memory", "gpus", "gpu_type", "expected"),
    [
        (0.0, 0.0, "", 0),
        (1.0, 0.0, "", MEMORY_GRAIN),
        (3.1 * GB, 0.0, "", 3.25 * GB),
        (math.inf, 0.0, "", 100 * GB),
        (math.inf, 0.5, "", 8 * GB),
        (3 * GB, 0.5, "T4", 1 * GB),
        (3 * GB, 0.5, OTHER, 3 * GB),
        (3 * GB, 0.5, "A100", 3 * GB),  # gone, so it may go anywhere
    ],
)
def test_requested_memory_is_limited_by_suitable_machines(
    memory: float, gpus: float, gpu_type: str, expected: float
) -> None:
    requesting_call = replace(call("double", 1.0), memory=memory, gpus=gpus, gpu_type=gpu_type)
    assert expected == memory_to_ask(requesting_call, [SMALL, LARGE, OLD, machine(memory=1000 * GB)])
    assert memory_to_ask(requesting_call, []) == 0


def test_gpus_are_counted_by_type() -> None:
    types = gpu_types([SMALL, SMALL, LARGE, OLD])
    assert types == {"T4": 2, OTHER: 2}
    assert gpu_selector("T4", types) == {GPU_LABEL: "T4"}
    assert gpu_selector(OTHER, types) == {GPU_LABEL: "!in(T4)"}


def test_lack_of_memory_differs_from_a_crash() -> None:
    cause = "the host's memory ran out, so Ray ended its worker process"
    assert reason(exceptions.OutOfMemoryError("Task was killed, the node was running low")) == (cause, True, "host")
    assert reason(exceptions.WorkerCrashedError()) == ("its worker process died", True, None)


def test_stated_memory_is_requested_exactly() -> None:
    stated = Resources(memory=ByteCount(10**9))
    for memory, expected in ((10**9, 10**9), (math.inf, 100 * GB)):
        assert memory_to_ask(replace(call("double", 1.0), memory=memory, resources=stated), (SMALL, LARGE)) == expected
    larger = Resources(memory=ByteCount(200 * GB))
    assert memory_to_ask(replace(call("double", 1.0), memory=200.0 * GB, resources=larger), (LARGE,)) == 200 * GB


@pytest.mark.parametrize(
    ("resources", "machines", "has_gpus", "reason"),
    [
        (Resources(gpus=1, cpus=2), (LARGE, SMALL), True, None),
        (Resources(cpus=64, memory=ByteCount(100 * GB)), (SMALL, LARGE), True, None),
        (Resources(gpus=2), (LARGE, SMALL, OLD), True, None),  # its machine has no processor
        (Resources(gpus=2, cpus=1), (LARGE, OLD), True, "2 GPUs, 8GiB of memory"),
        (Resources(gpus=1, cpus=3), (LARGE, SMALL), True, "1 GPU, 2 processors, 1GiB of memory"),
        (Resources(cpus=65), (LARGE,), True, "64 processors, 100GiB of memory"),
        (Resources(gpus=1, memory=ByteCount(10 * GB)), (OLD, SMALL), True, "2 GPUs, 8GiB of memory"),
        (Resources(memory=ByteCount(GB)), (OLD,), True, "2 GPUs, 8GiB of memory"),
        (Resources(gpus=1), (SMALL,), False, "the run uses no GPU (--gpus none)"),
        (Resources(cpus=1), (), True, "the cluster has no machine"),
    ],
)
def test_resources_beyond_every_machine_are_refused(
    resources: Resources, machines: tuple[Machine, ...], has_gpus: bool, reason: str | None
) -> None:
    found = obstacle(resources, machines, has_gpus)
    assert (found is None) == (reason is None)
    assert (reason or "") in (found or "")
