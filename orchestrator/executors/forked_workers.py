"""Worker processes on this machine, forked from one server. No process outlives this one, even by `kill -9`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

from orchestrator.errors import ClusterError
from orchestrator.executors import fork_server
from orchestrator.executors.environment import ONE_THREAD

ROOT = str(Path(__file__).resolve().parents[2])
END_SECONDS = 5.0  # for the server to end its workers and itself

T = TypeVar("T")


@dataclass
class Worker(Generic[T]):
    """A worker process, by its number, and its call."""

    number: int
    connection: Connection
    call: T | None = None
    begin_time: float | None = None  # of the call, once the process exists
    has_begun: bool = False  # whether the process exists
    end_reason: str = ""  # why it was asked to end


@dataclass(frozen=True)
class Death:
    """The end of a worker before it returned its call: its wait status, and why it was asked to end, if it was.

    Without a status, the server has died and its workers with it.
    """

    status: int | None
    end_reason: str = ""


class ForkedWorkers(Generic[T]):
    """Up to `slots` workers, forked when they are needed. They have one thread and see no GPU.

    Each runs the function that `factory`, a `module:function`, returns for `arguments`. The modules in `preload` are
    imported before the first worker is forked. Raises ClusterError if workers cannot be started, from any method.
    """

    def __init__(self, factory: str, arguments: Sequence[Any], preload: Sequence[str], slots: int) -> None:
        self.slots = slots
        self._order = fork_server.Order(
            root=ROOT,
            path=[os.path.abspath(path) for path in sys.path],
            preload=list(preload),
            factory=factory,
            arguments=list(arguments),
        )
        self._workers: dict[int, Worker[T]] = {}
        self._forked = 0  # number of workers so far
        self._has_forked = False  # whether this server has forked a worker
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket
        self._start_server()

    @property
    def busy(self) -> list[Worker[T]]:
        """The workers that have a call."""
        return [worker for worker in self._workers.values() if worker.call is not None]

    @property
    def server(self) -> int:
        """The process id of the server."""
        assert self._server is not None
        return self._server.pid

    def send(self, call: T, message: bytes) -> bool:
        """Send a call's message to a worker. Returns False if all workers are busy."""
        while True:
            worker = next((worker for worker in self._workers.values() if worker.call is None), None)
            if worker is None and len(self._workers) < self.slots:
                worker = self._fork()
            if worker is None:
                return False
            try:
                worker.connection.send_bytes(message)
            except OSError:  # it has ended since its last call
                self.forget(worker)
                continue
            worker.call = call
            worker.begin_time = time.monotonic() if worker.has_begun else None
            return True

    def receive(self, seconds: float) -> Iterator[tuple[T, Any]]:
        """Yield the calls that have ended, each with its answer or a Death. Waits up to this time for the first news.

        There may be news without an ended call.
        """
        connections = {worker.connection: worker for worker in self.busy if not worker.connection.closed}
        ready = wait([*connections, self._control], seconds)
        for connection, worker in connections.items():
            if connection in ready:
                yield from self._answer(worker)
        if self._control in ready:
            yield from self._take_report()

    def kill(self, worker: Worker[T], reason: str = "") -> None:
        """Kill a worker. Its call ends with this reason."""
        worker.end_reason = reason
        with suppress(OSError):  # the server has ended, and its workers with it
            self._control.sendall(fork_server.ORDER.pack(fork_server.KILL, worker.number))

    def forget(self, worker: Worker[T]) -> None:
        """Stop using a worker. It ends after its call, because its socket is closed. The call does not return."""
        self._workers.pop(worker.number, None)
        worker.connection.close()

    def close(self) -> None:
        """Kill all workers."""
        for worker in list(self._workers.values()):
            self.forget(worker)
        if self._server is None:
            return
        self._control.close()  # the server then kills the workers and ends
        try:
            self._server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:  # it is stopped; when it ends, the system kills the workers
            self._server.kill()
            self._server.wait()
        assert self._server.stderr is not None
        self._server.stderr.close()
        self._server = None

    def _start_server(self) -> None:
        self._has_forked = False
        self._control, other_end = socket.socketpair()
        with other_end:
            try:
                self._server = subprocess.Popen(
                    [sys.executable, "-P", fork_server.__file__, str(other_end.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env={**os.environ, **ONE_THREAD, "CUDA_VISIBLE_DEVICES": ""},
                    pass_fds=[other_end.fileno()],
                    start_new_session=True,  # a terminal interrupt must not reach the workers
                )
            except OSError as error:
                raise ClusterError(f"worker processes cannot be started: {error.strerror or error}") from error
        assert self._server.stdin is not None
        with suppress(OSError), self._server.stdin as stdin:  # it may have ended, which shows later
            stdin.write(self._order.to_json().encode())

    def _fork(self) -> Worker[T] | None:
        """Return a new worker, which begins once the server has forked it. Returns None if the server has ended."""
        own_end, other_end = socket.socketpair()
        self._forked += 1
        order = fork_server.ORDER.pack(fork_server.FORK, self._forked)
        with own_end, other_end:
            try:
                socket.send_fds(self._control, [order], [other_end.fileno()])
            except OSError:
                return None
            worker = Worker[T](self._forked, Connection(own_end.detach()))
        self._workers[worker.number] = worker
        return worker

    def _answer(self, worker: Worker[T]) -> Iterator[tuple[T, Any]]:
        """Yield the call that a worker has returned. If it has died instead, the server will report it."""
        try:
            answer = worker.connection.recv()
        except (EOFError, OSError):
            worker.connection.close()
            return
        call = worker.call
        assert call is not None
        worker.call = None
        yield call, answer

    def _take_report(self) -> Iterator[tuple[T, Any]]:
        """Take one report from the server. Yields the call that was lost, or all calls if the server has ended."""
        try:
            report = self._control.recv(fork_server.REPORT.size, socket.MSG_WAITALL)
        except OSError:
            report = b""
        if len(report) < fork_server.REPORT.size:
            yield from self._replace_server()
            return
        number, status = fork_server.REPORT.unpack(report)
        worker = self._workers.get(number)
        if status == fork_server.BEGAN:
            self._has_forked = True
        if worker is None:  # forgotten
            return
        if status == fork_server.BEGAN:
            worker.has_begun = True
            worker.begin_time = time.monotonic()
            return
        if worker.call is not None and not worker.connection.closed and worker.connection.poll():
            yield from self._answer(worker)  # it has died after its call
        call = worker.call
        self.forget(worker)
        if call is not None:
            yield call, Death(status, worker.end_reason)

    def _replace_server(self) -> Iterator[tuple[T, Any]]:
        """Yield the calls of a server that has ended, and start another. Raises ClusterError if it never worked."""
        assert self._server is not None
        assert self._server.stderr is not None
        self._control.close()
        with self._server.stderr as stderr:
            lines = stderr.read().decode(errors="replace").strip().splitlines()
        code = self._server.wait()
        if not self._has_forked:
            self._server = None
            reason = lines[-1] if lines else f"their server ended with code {code}"
            raise ClusterError(f"worker processes cannot be started: {reason}")
        for worker in list(self._workers.values()):
            self.forget(worker)
            if worker.call is not None:
                yield worker.call, Death(None)
        self._start_server()
