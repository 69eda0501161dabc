"""Processes that read third-party files. Each forks one child per file.

Modules are imported once per process instead of once per file. A child has the memory limit of `tasks.worker.confined`,
and neither what it reads nor its failure affects the process that forked it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

IDLE = 30.0  # seconds without a request after which a reader ends
_idle: list[ReaderProcess] = []
_lock = threading.Lock()


class ReaderProcess:
    """A process that handles one request at a time. Forked processes have their own readers."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.owner = os.getpid()
        # A separate process group: Ctrl-C reaches only the requesting process, which ends the reader and its child.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            process_group=0,
        )

    def ask(self, request: Mapping[str, Any]) -> int | None:
        """Run a request in a child. Returns the child's exit code, or None if the reader itself ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        except BaseException:
            self.kill()
            raise
        if not answer:
            self.kill()
        return int(answer) if answer else None

    def kill(self) -> None:
        """End the reader and the child it is waiting for."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Close the request pipe, after which the reader ends."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self.process.wait()


def ask_reader(request: Mapping[str, Any], start: Callable[[], ReaderProcess]) -> int | None:
    """Run a request's `server` in the child of an idle reader, or of a new one, and return its exit code.

    If an idle reader ends during the request, a new one is used. Returns None if that one ends too.
    """
    request = {**request, "paths": sys.path, "folder": os.getcwd(), "environment": dict(os.environ)}
    reader = _take_idle()
    code = reader.ask(request) if reader else None
    if reader is None or code is None:
        reader = start()
        code = reader.ask(request)
    if code is not None:
        with _lock:
            _idle.append(reader)
    return code


def _take_idle() -> ReaderProcess | None:
    with _lock:
        while _idle:
            reader = _idle.pop()
            if reader.owner == os.getpid():
                return reader
    return None


@atexit.register
def _close_idle() -> None:
    while (reader := _take_idle()) is not None:
        reader.close()


def serve_requests() -> None:
    """In the reader, fork a child for each request and print its exit code."""
    while select.select([0], [], [], IDLE)[0]:
        line = sys.stdin.buffer.readline()
        if not line:
            return
        request = json.loads(line)
        sys.path[:] = request["paths"]
        with contextlib.suppress(Exception):  # the child raises it again and reports it
            for name in ("server", "function"):
                _find_function(request[name])
            importlib.import_module("pyarrow.parquet")
        child = os.fork()
        if not child:
            _run_child(request)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.buffer.write(f"{code}\n".encode())
        sys.stdout.buffer.flush()


def _find_function(target: str) -> Callable[..., Any]:
    """Return the function named `module:function`."""
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _run_child(request: Mapping[str, Any]) -> None:
    """Answer one request and end this process. Library output is discarded."""
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):
            os.dup2(nowhere, stream)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        _find_function(request["server"])(request)
        code = 0
    finally:
        os._exit(code)
