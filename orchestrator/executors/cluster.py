"""A Ray cluster from outside: whether one answers at an address, its machines, and which of its calls run."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ray import exceptions
from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

from orchestrator.errors import ClusterError
from orchestrator.executors.calls import Call
from orchestrator.spec.specification import host_and_port

PROBE_SECONDS = 3.0
# HTTP/2, which gRPC speaks: the client's preface with an empty SETTINGS frame; a server answers with its own at once.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS = 4
CHECK = "is it up (`ray status` there), the port its GCS port (6379 by default), and open to this machine?"
LABEL = "ray.io/node-group"  # of machines that Ray's launcher, or KubeRay, has started
ANSWER_SECONDS = 5.0


def reachable(host: str, port: int, seconds: float = PROBE_SECONDS) -> bool:
    """Whether something accepts a connection there."""
    try:
        socket.create_connection((host, port), timeout=seconds).close()
    except OSError:
        return False
    return True


def probe(address: str) -> None:
    """Raise ClusterError, within PROBE_SECONDS in all, unless a gRPC server answers at the address."""
    host, port = host_and_port(address)
    troubles = [f"no Ray cluster at {address}: no answer in {PROBE_SECONDS:g} s; {CHECK}"]

    def ask() -> None:
        troubles.append(_trouble(address, host, port, time.monotonic() + PROBE_SECONDS))

    # In a thread, since a name lookup has no time limit.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    if troubles[-1]:
        raise ClusterError(troubles[-1])


def _trouble(address: str, host: str, port: int, end: float) -> str:
    """The problem at an address, in one line; empty if there is none."""
    try:
        connection = socket.create_connection((host, port), timeout=PROBE_SECONDS)
    except OSError as error:
        return f"no Ray cluster at {address}: {(error.strerror or str(error)).lower()}; {CHECK}"
    with connection:
        if os.environ.get("RAY_USE_TLS", "0") == "1" or _speaks_grpc(connection, end - 0.1):
            return ""
    return f"what answers at {address} is not Ray; is the port its GCS port (6379 by default)?"


def _speaks_grpc(connection: socket.socket, end: float) -> bool:
    """Whether the other side answers as an HTTP/2 server does, before `end` (monotonic seconds)."""
    answer = b""
    try:
        connection.sendall(PREFACE)
        while len(answer) < 9 and (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            received = connection.recv(64)
            if not received:
                return False
            answer += received
    except OSError:
        return False
    return len(answer) >= 9 and answer[3] == SETTINGS


@dataclass(frozen=True)
class Machine:
    """A machine of a cluster, with its resources and labels."""

    resources: Mapping[str, float]
    labels: Mapping[str, str]


def lack_gpus(gcs_client: Any) -> bool:
    """Whether the autoscaler says that no machine it may start has a GPU, while calls ask for one.

    Ray does not tell which types of machines there are, but which of the calls that wait none of them can run (as
    `ray status` shows it). That is believed only while no machine is being started.
    """
    reply = GetClusterStatusReply()
    try:
        reply.ParseFromString(gcs_client.get_cluster_status(timeout_s=ANSWER_SECONDS))
    except exceptions.RpcError:
        return False
    state = reply.autoscaling_state
    if state.pending_instances or state.pending_instance_requests:
        return False
    infeasible = [dict(request.resources_bundle) for request in state.infeasible_resource_requests]
    return any(bundle.keys() == {"GPU"} and bundle["GPU"] <= 1 for bundle in infeasible)


@dataclass
class Sent:
    """A submitted call that has not come back. Times are seconds of one monotonic clock."""

    call: Call
    since: float | None = None  # when there was a place for it to run in
    asked: float | None = None  # when it was asked whether it has begun
    begun: bool = False  # whether it is known to have begun
    taken: bool = False  # whether it was taken back before it began
    ending: float | None = None  # when it was first asked to end
    why: str = ""  # the reason for ending it


def calls_with_slots(sent: Iterable[Sent], slots: int, gpus: float, now: float) -> list[tuple[Call, float]]:
    """The calls that have a slot, in the order they were sent, each with the seconds since it got the slot.

    On a cluster that others use too, a call may begin later than that.
    """
    calls = []
    for entry in sent:
        if entry.call.gpus and gpus > 1e-9:
            gpus -= entry.call.gpus
        elif not entry.call.gpus and slots:
            slots -= 1
        else:
            continue
        entry.since = now if entry.since is None else entry.since
        calls.append((entry.call, now - entry.since))
    return calls
