"""A guard that ends all processes which a process has started when that process ends, even by `kill -9`.

It guards the processes of a local cluster, because Ray's own take about a minute to notice, and the programs of a
user. All these processes inherit a mark in the environment. The guard is a small process that waits on a pipe from the
process that started it, and kills every process with the mark when the pipe closes. This needs /proc. Without /proc
there is no guard.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator

MARK = "ENGRAM_CLUSTER"
# Workers end on their own within 2 s of the driver's death. Results until then count.
GRACE = 2.0
LOOK = 1.0  # seconds between scans for marked processes while the driver is alive
SWEEPS = 30  # maximum number, 0.2 s apart
QUIET_SWEEPS = 8  # consecutive sweeps that find nothing; processes that are just starting appear within this time
CLOSED = b"."


class Guard:
    """The driver's end of the guard. Guarded processes are started with `variables` in their environment.

    `is_tracking`: while the driver lives, the guard also follows children that lose the mark, as those of Ray do.
    Without tracking, it kills the marked processes as soon as the driver ends. `folder`: removed afterwards.
    """

    def __init__(self, variable: str = MARK, is_tracking: bool = True, folder: str = "") -> None:
        self.folder = folder
        self._variable = variable
        self._is_tracking = is_tracking
        self._mark = os.urandom(16).hex()
        self.variables = {variable: self._mark}
        self._pipe: int | None = None
        self.pid = 0  # of the guard; 0 without one
        if os.path.isdir("/proc/self"):
            self._start()

    def _start(self) -> None:
        import subprocess  # not at the top, because the guard process runs this file without it

        program = [sys.executable, "-I", "-S", __file__]
        reading, self._pipe = os.pipe()  # neither end is inherited, so no other process keeps the pipe open
        self._process = subprocess.Popen(
            [*program, self._variable, self._mark, "tracking" if self._is_tracking else "", self.folder],
            stdin=reading,
            stdout=subprocess.PIPE,  # closed when the guard ends
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a terminal interrupt must not reach the guard
            cwd="/",
        )
        os.close(reading)
        assert self._process.stdout is not None
        self.pid = int(self._process.stdout.readline())
        self._process.wait()  # the guard is its child, because Ray kills the children of a worker that it cancels

    def kill_stopped_processes(self) -> None:
        """Kill marked processes that are stopped, for example by SIGSTOP, because they react to no other signal."""
        if self._pipe is not None:
            for pid in marked_processes(self._mark, self._variable):
                if state(pid) == "T":
                    _kill(pid)

    def close(self) -> None:
        """Shut down. The guard kills the remaining processes at once."""
        if self._pipe is None:
            return
        os.write(self._pipe, CLOSED)
        os.close(self._pipe)
        self._pipe = None
        assert self._process.stdout is not None
        with self._process.stdout as ending:
            ending.read()


def marked_processes(mark: str, variable: str = MARK) -> Iterator[int]:
    """Yield the other processes that were started with the mark in their environment."""
    entry = f"{variable}={mark}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        if entry in variables:
            yield int(name)


def _stat(pid: int) -> tuple[int, str] | None:
    """Return the parent and start time of a living process. They identify it, because process ids are reused."""
    fields = _fields(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return (int(fields[1]), fields[19])


def state(pid: int) -> str | None:
    """Return a process's state as a letter (R running, S sleeping, T stopped).

    Returns None if there is no such process.
    """
    fields = _fields(pid)
    return None if fields is None else fields[0]


def _fields(pid: int) -> list[str] | None:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def family(mark: str, variable: str = MARK) -> dict[int, str]:
    """Return the start times of the marked processes and all their descendants, by pid.

    Ray's agents overwrite the environment with a process title and may lack the mark, but their parent has it.
    """
    processes = {int(name): state for name in os.listdir("/proc") if name.isdigit() and (state := _stat(int(name)))}
    members = set(marked_processes(mark, variable)) & set(processes)
    grown = True
    while grown:
        children = {pid for pid, (parent, _) in processes.items() if parent in members} - members
        members |= children
        grown = bool(children)
    return {pid: processes[pid][1] for pid in members if pid != os.getpid()}


def sweep(mark: str, known_processes: dict[int, str], variable: str = MARK) -> int:
    """Kill every process that is known or carries the mark. Returns the number killed."""
    known_pids = [
        pid for pid, start_time in known_processes.items() if (state := _stat(pid)) and state[1] == start_time
    ]
    for pid in known_pids:  # before the search, because reading a busy process's environment can take long
        _kill(pid)
    late_pids = [pid for pid in marked_processes(mark, variable) if pid not in known_pids]
    for pid in late_pids:
        _kill(pid)
    return len(known_pids) + len(late_pids)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return


def watch(variable: str, mark: str, is_tracking: bool) -> None:
    """Track marked processes until the driver closes the guard or dies. Then sweep until none is left."""
    processes: dict[int, str] = {}
    while not select.select([0], [], [], LOOK if is_tracking else None)[0]:
        processes.update(family(mark, variable))
    closed = os.read(0, 1) == CLOSED
    if not closed and is_tracking:
        time.sleep(GRACE)
    quiet = 0
    for _ in range(SWEEPS):
        if sweep(mark, processes, variable):
            quiet = 0
        else:
            quiet = quiet + 1
        if quiet == (2 if closed else QUIET_SWEEPS):
            return
        time.sleep(0.2)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    os.write(1, b"%d\n" % os.getpid())
    watch(sys.argv[1], sys.argv[2], bool(sys.argv[3]))
    if sys.argv[4]:
        shutil.rmtree(sys.argv[4], ignore_errors=True)
