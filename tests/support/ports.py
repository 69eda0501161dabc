"""Ports for servers that tests start: nobody else is given one between its choice and the server's start."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
COUNT = 8000  # ports below those that the system gives to connections and to servers that name none
_reserved: list[socket.socket] = []  # for as long as this process lives


def free_port() -> int:
    """A port that nothing listens on.

    It is reserved against all test processes of this machine by a socket of its name, and the system gives it to
    nobody, since it lies below the range of ports that it chooses from.
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
