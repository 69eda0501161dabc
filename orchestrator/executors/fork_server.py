"""A process that forks workers. It has imported what they need but started no threads, so a fork is fast and safe.

The only other thread is that of the allocator in pyarrow, which prepares itself for a fork.

The driver runs this file as a script. It must not fork workers itself: it has threads, whose locks a child would
inherit. This module imports only the standard library until it knows the driver's import path.

The driver sends orders and receives reports on one socket. When the socket closes, because the driver has ended or was
killed, the server kills all workers and ends. If the server is killed, the system kills the workers.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

FORK = b"F"  # with the descriptor of the worker's socket
KILL = b"K"
ORDER = struct.Struct("!cI")  # kind, number of the worker
REPORT = struct.Struct("!Ii")  # number of the worker, its wait status or one of the following
BEGAN = -1  # the worker was forked
NOT_FORKED = -2  # the system refused another process
SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
MOST_KILLABLE = b"1000"  # in /proc/self/oom_score_adj: without memory, the system ends a worker, not the driver

Work = Callable[[bytes], Any]  # returns an answer that can be pickled


@dataclass(frozen=True)
class Order:
    """What a server needs. `factory` is a `module:function` that returns a worker's function from `arguments`."""

    root: str  # the folder of our packages, which take precedence over others of the same name
    path: Sequence[str]  # the driver's import path
    preload: Sequence[str]  # modules to import before the first fork, if they exist
    factory: str
    arguments: Sequence[Any]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    """Serve the driver at the socket given as a descriptor. The order is on stdin."""
    control = socket.socket(fileno=int(sys.argv[1]))
    order = Order(**json.loads(sys.stdin.read()))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    _import_packages(order)
    # Output of workers is not shown, as on a cluster. An exception above is, because the driver reads it.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    gc.freeze()  # so that a worker's garbage collection does not copy the memory that it shares
    ForkServer(control, order.factory, order.arguments).serve()


def _import_packages(order: Order) -> None:
    sys.path[:] = [order.root, *order.path]
    for name in ("orchestrator", "tasks"):
        importlib.import_module(name)
    sys.path[:] = [*order.path, *([] if order.root in order.path else [order.root])]
    importlib.import_module("orchestrator.deferred_pandas").defer_pandas()
    for name in order.preload:
        with suppress(ImportError):  # a job that needs it fails with this error
            importlib.import_module(name)


class ForkServer:
    """Forks and kills workers as ordered, and reports their ends."""

    def __init__(self, control: socket.socket, factory: str, arguments: Sequence[Any]) -> None:
        self._control = control
        self._factory = factory
        self._arguments = arguments
        self._workers: dict[int, int] = {}  # number by process id
        self._signals, self._signal_writer = os.pipe()

    def serve(self) -> None:
        """Serve until the driver closes the socket."""
        for descriptor in (self._signals, self._signal_writer):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._signal_writer, warn_on_full_buffer=False)
        try:
            while self._serve_once():
                pass
        except OSError:  # the driver has died while it was told something
            pass
        for pid in self._workers:
            _kill(pid)
        for pid in self._workers:
            os.waitpid(pid, 0)  # so that their processor time counts as ours

    def _serve_once(self) -> bool:
        ready, _, _ = select.select([self._control.fileno(), self._signals], [], [])
        if self._signals in ready:
            os.read(self._signals, 4096)
            for number, status in self._ended_workers():
                self._report(number, status)
        if self._control.fileno() not in ready:
            return True
        message, descriptors, _, _ = socket.recv_fds(self._control, ORDER.size, 1, socket.MSG_WAITALL)
        if len(message) < ORDER.size:
            return False
        kind, number = ORDER.unpack(message)
        if kind == FORK:
            self._fork(number, descriptors[0])
        for pid, worker in self._workers.items():
            if kind == KILL and worker == number:
                _kill(pid)
        return True

    def _ended_workers(self) -> Iterator[tuple[int, int]]:
        for pid in list(self._workers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                yield self._workers.pop(pid), status

    def _report(self, number: int, status: int) -> None:
        self._control.sendall(REPORT.pack(number, status))

    def _fork(self, number: int, descriptor: int) -> None:
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            try:
                self._become_worker(descriptor, server)
            finally:
                os._exit(1)  # an exception must not reach the server's loop
        os.close(descriptor)
        if pid < 0:
            self._report(number, NOT_FORKED)
            return
        self._workers[pid] = number
        self._report(number, BEGAN)

    def _become_worker(self, descriptor: int, server: int) -> None:
        """Run the worker's loop in the child. It ends when the driver closes its end."""
        _die_with(server)
        os.setpgid(0, 0)  # processes that a job starts end with the worker
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for inherited in (self._signals, self._signal_writer):
            os.close(inherited)
        self._control.close()
        with suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(MOST_KILLABLE)
        gc.enable()
        connection = Connection(descriptor)
        module, _, name = self._factory.partition(":")
        work: Work = getattr(importlib.import_module(module), name)(*self._arguments)
        with suppress(EOFError):
            while True:
                connection.send(work(connection.recv_bytes()))
        os._exit(0)


def _die_with(parent: int) -> None:
    """Make the system kill this process when its parent ends, if the system can."""
    set_option: Any = getattr(ctypes.CDLL(None), "prctl", None)
    if set_option is not None:
        set_option(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


def _kill(pid: int) -> None:
    """Kill a worker and the processes that it has started."""
    for kill, target in ((os.killpg, pid), (os.kill, pid)):  # the worker may not have its own group yet
        with suppress(OSError):
            kill(target, signal.SIGKILL)


if __name__ == "__main__":
    main()
