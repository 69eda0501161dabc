"""Check in seconds whether a Ray cluster answers at an address: Ray itself keeps trying for minutes."""

from __future__ import annotations

import os
import socket
import threading
import time

from orchestrator.errors import ClusterError
from orchestrator.spec.specification import host_and_port

PROBE_SECONDS = 3.0
# HTTP/2, which gRPC speaks: the client's preface with an empty SETTINGS frame; a server answers with its own at once.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS = 4
CHECK = "is it up (`ray status` there), the port its GCS port (6379 by default), and open to this machine?"


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
