"""Ports for servers of tests, reserved between their choice and the start of the server."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
COUNT = 8000  # ports below the range that the system assigns to connections and unnamed servers
_reserved: list[socket.socket] = []  # while this process lives


def free_port() -> int:
    """A port without a listener.

    A socket with a name made from the port reserves it against all test processes of this machine. The system assigns
    it to no other process, because it is below the range of ephemeral ports.
    """
    first = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32768
    for port in random.sample(range(first - COUNT, first), COUNT):
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with suppress(OSError), socket.socket() as tried:
            name.bind(f"\0engram-test-port-{port}")
            tried.bind(("127.0.0.1", port))
            _reserved.append(name)
            return port
        name.close()
    raise RuntimeError(f"no port from {first - COUNT} to {first - 1} is free")
