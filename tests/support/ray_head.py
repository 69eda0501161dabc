"""A head of Ray as `ray start --head` starts one, in a folder of its own, and killed whole at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from tests.conftest import OBJECT_STORE_BYTES

ATTEMPTS, START_SECONDS = 5, 90.0  # a node of Ray gives up after 15 s of starting, which a busy machine may need


@contextlib.contextmanager
def ray_head(port: int, log: Path, settings: Mapping[str, str], *options: str) -> Iterator[None]:
    """A head that listens on this port inside the block; `settings` are added to its environment."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
    command += [f"--object-store-memory={OBJECT_STORE_BYTES}", *options]
    with contextlib.ExitStack() as stack:
        for _ in range(ATTEMPTS):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
            with log.open("w") as written:
                asked = [*command, f"--temp-dir={folder}"]
                head = psutil.Popen(asked, env=os.environ | settings, stdout=written, stderr=written)
            stack.callback(end, head)
            limit = time.monotonic() + START_SECONDS
            while not (started := "Ray runtime started" in log.read_text()) and time.monotonic() < limit:
                time.sleep(0.1)
            if started:
                break
            end(head)
        assert started, log.read_text()
        yield


def end(head: psutil.Popen) -> None:
    """Kill this process and all that it has started, the machines among them."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in (*head.children(recursive=True), head):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    head.wait()
