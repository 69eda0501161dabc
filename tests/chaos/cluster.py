"""A local Ray cluster of a head and two nodes. Each node has a network namespace behind a bridge and can be cut off.

It needs root, and private namespaces for network and mounts, as in the campaign.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.conftest import OBJECT_STORE_BYTES
from tests.support.forks import PATHS
from tests.support.ray_head import end

HEAD = "10.77.0.1"
NODES = {"n1": "10.77.0.11", "n2": "10.77.0.12"}
ATTEMPTS = 4
START_SECONDS = 90.0
SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_health_check_period_ms": "500",  # a node that is gone is struck off after 2 s instead of 15
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": PATHS,
}


class RayCluster:
    """A cluster whose missing parts `restore` starts."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = {**SETTINGS, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self._settings = settings
        self._processes: dict[str, psutil.Popen] = {}
        self._port = 6400
        build_network()

    @property
    def address(self) -> str:
        return f"{HEAD}:{self._port}"

    def restore(self) -> None:
        """Start the head and all nodes that are missing, each reachable."""
        for _ in range(ATTEMPTS):
            if not self._alive("head"):
                for name in list(self._processes):
                    self.kill(name)
                self._port += 100  # none that an earlier head may still hold
                temporary = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
                options = [f"--port={self._port}", "--num-cpus=0", "--include-dashboard=false"]
                if not self._start("head", HEAD, [], ["--head", *options, f"--temp-dir={temporary}"]):
                    continue
            if all(self._alive(name) or self._join(name, node_address) for name, node_address in NODES.items()):
                return
        raise RuntimeError(f"no Ray cluster: {(self.folder / 'head.log').read_text()[-2000:]}")

    def kill(self, name: str) -> None:
        """Kill the head or a node, and all processes of it, at once."""
        if name in self._processes:
            end(self._processes.pop(name))

    def workers(self) -> list[psutil.Process]:
        """The processes that have computed something on the nodes."""
        workers = []
        for name in NODES:
            with contextlib.suppress(KeyError, psutil.NoSuchProcess):
                for process in self._processes[name].children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::"):
                            workers.append(process)
        return workers

    def cut(self, name: str) -> None:
        """Block all traffic of a node."""
        ip("link", "set", f"v{name}", "down")

    def plug(self, name: str) -> None:
        """Restore the traffic of a node."""
        ip("link", "set", f"v{name}", "up")

    def join(self, name: str) -> None:
        """Restore the traffic of a node and start it again, because Ray does not readmit a removed node."""
        self.plug(name)
        self.kill(name)

    def close(self) -> None:
        for name in [*NODES, "head"]:
            self.kill(name)

    def _alive(self, name: str) -> bool:
        return name in self._processes and self._processes[name].poll() is None

    def _join(self, name: str, node_address: str) -> bool:
        self.kill(name)
        inside = ["nsenter", f"--net=/run/netns/{name}"]
        return self._start(name, node_address, inside, [f"--address={self.address}", "--num-cpus=1"])

    def _start(self, name: str, node_address: str, prefix: list[str], options: list[str]) -> bool:
        command = [*prefix, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *options]
        command += [f"--node-ip-address={node_address}", f"--object-store-memory={OBJECT_STORE_BYTES}"]
        log = self.folder / f"{name}.log"
        environment = os.environ | self.environment | self._settings
        with log.open("w") as log_file:
            process = psutil.Popen(command, env=environment, stdout=log_file, stderr=log_file, cwd=self.folder)
        self._processes[name] = process
        limit = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < limit:
            if "Ray runtime started" in log.read_text():
                return True
            time.sleep(0.1)
        self.kill(name)
        return False


def build_network() -> None:
    """Create a bridge with an address, and a network namespace for each node."""
    ip("link", "add", "br0", "type", "bridge")
    ip("addr", "add", f"{HEAD}/24", "dev", "br0")
    ip("link", "set", "br0", "up")
    for name, node_address in NODES.items():
        ip("netns", "add", name)
        ip("link", "add", f"v{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", f"v{name}", "master", "br0", "up")
        ip("-n", name, "addr", "add", f"{node_address}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
