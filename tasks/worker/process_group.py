"""Compute jobs of a task in several processes that train each model together, one per GPU or processor.

The processes (ranks) run inside one job of the cluster. They find each other through a file in a temporary folder, so
no port is opened to other machines, and communicate with NCCL on GPUs and with Gloo on processors. If one of them
fails, all end, and the first error is raised here with its rank. If this process dies, even by `kill -9`, they are
killed (`tasks.worker.process_guard`).

Ranks that have finished wait for a while for the next jobs of this process, because importing torch and finding each
other takes seconds. They end if the next jobs need another number of ranks, GPUs or threads, or after an error.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count, islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tasks
from tasks.contract.job import Inputs
from tasks.user_code.acceptance import current_stand_ins
from tasks.worker import checkpoints, compute_context, hardware
from tasks.worker.job_services import ProgramDied
from tasks.worker.process_guard import Guard
from tasks.worker.rank_process import RankWork

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_MARK = "ENGRAM_GROUP"  # marks the ranks of one process
AGREEING = 60.0  # seconds between the first and the last rank that end a job with an error
SETTLING = 1.0  # seconds in which the other ranks may report an error that came before the first one reported
REUSED = 60.0  # seconds in which ranks that have finished are used again; they themselves wait a little longer
# Variables that a process reads once, by the beginning of their names.
READ_ONCE = ("CUDA", "GLOO", "KMP", "LD_", "MALLOC", "MKL", "NCCL", "NVIDIA", "OMP", "PYTHON", "PYTORCH", "TORCH")
# Our package comes first while it is imported, because a folder on the path may contain another `tasks`.
START = (
    "import sys, json; root, paths = json.loads(sys.argv[1]); sys.path[:] = [root, *paths]; import tasks; "
    "sys.path[:] = paths; from {} import {}; {}()"
)
TARGET = "tasks.worker.rank_process:run_rank"


def compute_together(
    function: str, configs: Sequence[Any], inputs: Sequence[Inputs]
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Compute jobs of the task named `module:name`, each with all processes of the context.

    Yields each job's index with its table or exception. Checkpoints, progress and notes are those of this process.
    Raises ProgramDied if a rank is killed, and otherwise the first error of a rank.
    """
    context = compute_context.current_context()
    group = _take_idle(context.processes) or _Group(context.processes)
    work = RankWork(
        rank=0,
        size=group.size,
        rendezvous=str(group.rendezvous),
        function=function,
        configs=configs,
        inputs=inputs,
        context=(context.way, context.members),
        states_requested=[checkpoints.is_state_requested(index) for index in range(len(configs))],
        stand_ins=dict(current_stand_ins()),
    )
    is_reusable = False
    try:
        is_reusable = yield from group.compute(work)
    finally:
        if is_reusable:
            _keep_idle(group)
        else:
            group.end()


@dataclass(eq=False)
class _Rank:
    """The parent's end of one rank."""

    number: int
    process: subprocess.Popen[bytes]
    pipe: Connection
    is_done: bool = False


@dataclass(eq=False)
class _Failure:
    """How a rank ended without finishing its work. `follows` is set if another rank's end may be the cause."""

    rank: int
    error: BaseException
    follows: bool


@dataclass(eq=False)
class _Ending:
    """The job that a rank has ended, with its outcome. It is None for a table of another rank than the first."""

    index: int
    outcome: pa.Table | Exception | None
    notes: Mapping[str, Any]
    memory: int  # peak host memory of the rank, in bytes


@dataclass(eq=False)
class _States:
    """The checkpoints of one job, each read once for all ranks."""

    unread: Iterator[bytes]
    known: list[bytes] = field(default_factory=list)

    def state(self, number: int) -> bytes:
        """Return the checkpoint with this number, counted from 0, or no bytes if there are fewer."""
        self.known += islice(self.unread, max(0, number + 1 - len(self.known)))
        return self.known[number] if number < len(self.known) else b""


class _Group:
    """Ranks that compute jobs together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.owner = os.getpid()
        self.settings = _read_once()
        self.finished = 0.0  # time of the latest end of jobs
        self.rendezvous = Path(_guard(os.getpid()).folder) / f"group {next(_numbers)}"
        self.states: dict[int, _States] = {}
        self.failures: list[_Failure] = []
        self.endings: dict[int, _Ending] = {}  # of the current job, by rank
        self.deadline: float | None = None  # for all ranks to end the current job, once one has ended with an error
        self.ranks: list[_Rank] = []
        try:
            for number in range(size):
                self.ranks.append(_start_rank(number))
        except BaseException:
            self.end()
            raise

    def is_usable(self, size: int) -> bool:
        """Return whether the ranks can compute jobs with this number of processes now."""
        is_recent = time.monotonic() - self.finished < REUSED
        has_all = all(rank.process.poll() is None for rank in self.ranks)
        return is_recent and has_all and size == self.size and self.settings == _read_once()

    def compute(self, work: RankWork) -> Generator[tuple[int, pa.Table | Exception], None, bool]:
        """Compute jobs and yield their outcomes. Returns whether the ranks can be used again: no job has failed."""
        self.states = {}
        for rank in self.ranks:
            rank.is_done = False
            with suppress(ConnectionError):  # it has ended, as its pipe will show
                rank.pipe.send({"paths": _search_path(), "folder": os.getcwd(), "environment": dict(_environment())})
                rank.pipe.send_bytes(pickle.dumps(replace(work, rank=rank.number)))
        is_reusable = True
        for index, outcome in self._outcomes():
            is_reusable = is_reusable and not isinstance(outcome, Exception)
            yield index, outcome
        self.finished = time.monotonic()
        return is_reusable

    def _outcomes(self) -> Iterator[tuple[int, pa.Table | Exception]]:
        """Yield the outcomes of the first rank, and serve all ranks until they have finished."""
        while waiting := [rank for rank in self.ranks if not rank.is_done]:
            seconds = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
            ready = wait([rank.pipe for rank in waiting], seconds)
            for rank in waiting:
                if rank.pipe in ready:
                    self._serve(rank)
            if self.failures:
                raise self._first_failure()
            if len(self.endings) == self.size or not ready:
                yield self._end_job()

    def _end_job(self) -> tuple[int, pa.Table | Exception]:
        """Return the outcome of the job that all ranks have ended, and let them begin the next one.

        Raises the error of a rank if the others have not ended the job with an error, since they wait for it.
        """
        for number, ending in sorted(self.endings.items()):
            if isinstance(ending.outcome, Exception) and not self._all_failed():
                raise _error_of_rank(number, ending.outcome, f"{type(ending.outcome).__name__}: {ending.outcome}")
        first = self.endings[0]
        if {ending.index for ending in self.endings.values()} != {first.index}:
            raise RuntimeError("the processes that train one model together have ended different jobs")
        compute_context.note(**first.notes, processes=self.size)
        hardware.add_peak_memory(sum(ending.memory for ending in self.endings.values()))
        self.endings = {}
        self.deadline = None
        for rank in self.ranks:
            rank.pipe.send_bytes(b"next")
        assert first.outcome is not None
        return first.index, first.outcome

    def _all_failed(self) -> bool:
        errors = [ending for ending in self.endings.values() if isinstance(ending.outcome, Exception)]
        return len(errors) == self.size

    def _serve(self, rank: _Rank) -> None:
        """Answer one message of a rank."""
        try:
            message = rank.pipe.recv()
        except (EOFError, ConnectionError):
            self.failures.append(_Failure(rank.number, _death(rank, self.size), follows=False))
            rank.is_done = True
            return
        match message:
            case ("advance", networks):
                compute_context.advance(networks)
            case ("state", index, number):
                rank.pipe.send_bytes(self._state(index, number))
            case ("leave", index, state):
                checkpoints.leave(index, state)
            case ("outcome", index, outcome, notes, memory):
                self.endings[rank.number] = _Ending(index, outcome, notes, memory)
                if isinstance(outcome, Exception) and self.deadline is None:
                    self.deadline = time.monotonic() + AGREEING
            case ("failed", error, text, follows):
                self.failures.append(_Failure(rank.number, _error_of_rank(rank.number, error, text), follows))
                rank.is_done = True
            case ("done",):
                rank.is_done = True

    def _state(self, index: int, number: int) -> bytes:
        if index not in self.states:
            self.states[index] = _States(checkpoints.earlier_checkpoints(index))
        return self.states[index].state(number)

    def _first_failure(self) -> BaseException:
        """Return the error that ended the group, rather than one that another rank's end has caused."""
        deadline = time.monotonic() + SETTLING
        while all(failure.follows for failure in self.failures):
            waiting = [rank for rank in self.ranks if not rank.is_done]
            ready = wait([rank.pipe for rank in waiting], max(0.0, deadline - time.monotonic()))
            for rank in waiting:
                if rank.pipe in ready:
                    self._serve(rank)
            if not ready:
                break
        return min(self.failures, key=lambda failure: failure.follows).error

    def end(self) -> None:
        """Kill the ranks, and wait until all have ended."""
        for rank in self.ranks:
            rank.process.kill()
        for rank in self.ranks:
            rank.process.wait()
            rank.pipe.close()
        self.rendezvous.unlink(missing_ok=True)


_numbers = count()  # of the groups of this process
_idle: list[_Group] = []  # at most one group, whose ranks wait for jobs
_lock = threading.Lock()


def _take_idle(size: int) -> _Group | None:
    """Return the idle ranks if they can be used. Otherwise, they end."""
    with _lock:
        group = _idle.pop() if _idle else None
    if group is None or group.owner != os.getpid():  # a forked process must leave those of the other process alone
        return None
    if group.is_usable(size):
        return group
    group.end()
    return None


def _keep_idle(group: _Group) -> None:
    end_idle_ranks()
    with _lock:
        _idle.append(group)


@atexit.register
def end_idle_ranks() -> None:
    """End the ranks that wait for jobs of this process."""
    group = _take_idle(0)
    assert group is None


def _start_rank(number: int) -> _Rank:
    """Start the process of a rank, which waits for its work."""
    here, there = socket.socketpair()
    with there:
        paths = json.dumps([_root(), _search_path()])
        module, _, function = TARGET.partition(":")
        process = subprocess.Popen(
            [sys.executable, "-c", START.format(module, function, function), paths, str(there.fileno())],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            pass_fds=[there.fileno()],
            process_group=0,  # Ctrl-C reaches only this process, which ends the ranks
        )
    return _Rank(number, process, Connection(here.detach()))


def _root() -> str:
    """Return the folder of our packages."""
    return str(Path(tasks.__file__).resolve().parents[1])


def _search_path() -> list[str]:
    """Return where a rank finds modules: as in this process, and our packages in any case."""
    return sys.path.copy() if _root() in sys.path else [*sys.path, _root()]


def _environment() -> Mapping[str, str]:
    """Return the environment of a rank. All ranks are on this machine and communicate through its loopback device."""
    loopback = "lo" if sys.platform.startswith("linux") else "lo0"
    interfaces = {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
    return {**interfaces, **os.environ, **_guard(os.getpid()).variables}


def _read_once() -> Mapping[str, str]:
    """Return the variables of the environment that take effect only when a process starts."""
    return {name: value for name, value in _environment().items() if name.startswith(READ_ONCE)}


@cache
def _guard(pid: int) -> Guard:  # noqa: ARG001 - a forked process needs its own
    """Return the guard that kills the ranks of this process when it ends, and removes its folder."""
    guard = Guard(GROUP_MARK, is_tracking=False, folder=tempfile.mkdtemp(prefix="engram-group-"))
    if not guard.pid:
        atexit.register(shutil.rmtree, guard.folder, ignore_errors=True)
    return guard


def _death(rank: _Rank, size: int) -> ProgramDied:
    """Return the error for a rank that has ended without a message."""
    code = rank.process.wait()
    cause = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
    return ProgramDied(f"process {rank.number} of {size} that train one model together {cause}")


def _error_of_rank(number: int, error: BaseException | None, text: str) -> BaseException:
    """Return the error of a rank, with its rank and its traceback as a note."""
    if error is None:
        error = RuntimeError(text.strip().splitlines()[-1])
    error.add_note(f"Raised by rank {number}:\n{text}")
    return error
