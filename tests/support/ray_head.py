"""A Ray head as started by `ray start --head`, in its own folder. All its processes end with the context."""

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

ATTEMPTS = 5  # a node of Ray gives up after 15 s of starting
START_SECONDS = 90.0  # which a busy machine may need


@contextlib.contextmanager
def ray_head(port: int, log: Path, settings: Mapping[str, str], *options: str) -> Iterator[None]:
    """A head that listens on this port inside the block; `settings` are added to its environment."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
    command += [f"--object-store-memory={OBJECT_STORE_BYTES}", *options]
    with contextlib.ExitStack() as stack:
        for _ in range(ATTEMPTS):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
            with log.open("w") as log_file:
                head_command = [*command, f"--temp-dir={folder}"]
                head = psutil.Popen(head_command, env=os.environ | settings, stdout=log_file, stderr=log_file)
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
    """Kill a process and all its descendants, including the machines."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in (*head.children(recursive=True), head):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    head.wait()
