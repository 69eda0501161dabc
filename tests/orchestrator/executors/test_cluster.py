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
    reason,
)
from orchestrator.executors.connection import PREFACE, probe, reachable
from orchestrator.spec.specification import host_and_port
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
def test_what_is_not_ray_is_told(server: str) -> None:
    with pytest.raises(ClusterError, match=rf"the server at {server} is not Ray"):
        probe(server)


@pytest.mark.parametrize("server", [http2], indirect=True)
def test_a_grpc_server_passes(server: str) -> None:
    probe(server)


def test_a_port_where_nobody_listens_is_told_with_what_to_check() -> None:
    port = free_port()
    assert not reachable("127.0.0.1", port)
    with pytest.raises(
        ClusterError, match=rf"no Ray cluster at 127.0.0.1:{port}: connection refused; check that it runs"
    ):
        probe(f"127.0.0.1:{port}")


def test_a_host_that_swallows_packets_is_told_and_not_waited_for() -> None:
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
        for each in waiting:
            each.close()


def test_a_name_that_nobody_knows_is_no_cluster() -> None:
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
def test_what_is_no_address_is_said_with_the_forms_that_are(address: str) -> None:
    with pytest.raises(ClusterError, match="is not an address of a Ray cluster; give HOST:PORT"):
        host_and_port(address)


def test_calls_run_in_the_order_in_which_they_were_sent_as_far_as_there_are_places() -> None:
    sent = [SentCall(call("double", 1.0, first=number)) for number in range(1, 5)]
    assert [(each.number, seconds) for each, seconds in calls_with_slots(sent, 2, 0, now=10.0)] == [(1, 0.0), (2, 0.0)]
    del sent[0]
    assert [(each.number, seconds) for each, seconds in calls_with_slots(sent, 2, 0, now=15.0)] == [(2, 5.0), (3, 0.0)]


def test_calls_on_gpus_take_their_parts_of_these_and_no_processor() -> None:
    halves = [SentCall(replace(call("on_gpu", 1.0, first=number), gpus=0.5)) for number in range(1, 5)]
    sent = [*halves, SentCall(call("double", 1.0, first=5)), SentCall(call("double", 1.0, first=6))]
    assert [each.number for each, _ in calls_with_slots(sent, 1, 1, now=0.0)] == [1, 2, 5]
    assert [each.number for each, _ in calls_with_slots(sent, 2, 0, now=0.0)] == [5, 6]


def machine(**resources: float) -> Machine:
    labels = {GPU_LABEL: "T4"} if resources.pop("t4", 0) else {}
    return Machine(resources, labels, "id", "name")


SMALL = machine(CPU=2, memory=1 * GB, GPU=1, t4=1)
LARGE = machine(CPU=64, memory=100 * GB)
OLD = machine(GPU=2, memory=8 * GB)


@pytest.mark.parametrize(
    ("memory", "gpus", "gpu_type", "asked"),
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
def test_a_call_asks_for_the_memory_it_takes_as_far_as_a_machine_that_can_run_it_has_it(
    memory: float, gpus: float, gpu_type: str, asked: float
) -> None:
    asking = replace(call("double", 1.0), memory=memory, gpus=gpus, gpu_type=gpu_type)
    assert asked == memory_to_ask(asking, [SMALL, LARGE, OLD, machine(memory=1000 * GB)])
    assert memory_to_ask(asking, []) == 0


def test_gpus_are_counted_by_type_and_the_unknown_ones_are_a_type() -> None:
    types = gpu_types([SMALL, SMALL, LARGE, OLD])
    assert types == {"T4": 2, OTHER: 2}
    assert gpu_selector("T4", types) == {GPU_LABEL: "T4"}
    assert gpu_selector(OTHER, types) == {GPU_LABEL: "!in(T4)"}


def test_a_worker_that_the_node_had_no_memory_for_is_told_from_one_that_died() -> None:
    cause = "the host's memory ran out, so Ray ended its worker process"
    assert (cause, True, "host") == reason(exceptions.OutOfMemoryError("Task was killed, the node was running low"))
    assert reason(exceptions.WorkerCrashedError()) == ("its worker process died", True, None)
