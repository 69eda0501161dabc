"""A run has one driver at a time: the one that holds its lease.

The lease is a JSON file in the run's folder. It names the holder so exactly (host, boot, process, the process's start)
that a dead one is known at once on the same machine; on another machine a heartbeat tells. So nobody ever unlocks
anything by hand. A file lock makes reading, judging and writing one step; where a file system has no locks the JSON
alone still refuses all but drivers that start in the same instant, and those find out at the next heartbeat.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import TracebackType

from orchestrator.errors import Held
from orchestrator.store import aside
from orchestrator.store.lock import locked

LEASE, LOCK = "lease.json", "lease.lock"
ELSEWHERE = "elsewhere.json"  # the driver on another machine, as far as its claim has been heard of here
BEAT = 5.0  # seconds between heartbeats
STALE = 60.0  # seconds without one after which a holder on another machine counts as dead
Clock = Callable[[], float]


@dataclass(frozen=True)
class Holder:
    """Who holds a lease. `started` is the process's start as the system counts it, times are seconds since 1970."""

    host: str
    boot: str  # changes when the machine starts again
    space: str  # the process's pid namespace: a number means nothing in another container
    pid: int
    started: str
    since: float
    beat: float
    token: str  # this acquisition and no other

    def alive(self, now: float) -> bool:
        """Whether this driver still runs, as far as can be told from here."""
        if self.host == socket.gethostname() and self.boot != _boot():
            return False  # the machine has been started again since
        if here(self):
            started = _started(self.pid)
            return started is not None and ("" in (started, self.started) or started == self.started)
        return now - self.beat <= STALE


class Lease:
    """Held from `acquire` to `release`; a context manager. With a `heart`, a thread calls `renew` every `beat`."""

    def __init__(self, folder: Path, mine: Holder, now: Clock, beat: float, heart: bool = True) -> None:
        self._folder, self._mine, self._now, self._beat = folder, mine, now, beat
        self._seen = now()  # when the lease was last found to be ours
        self._lost = False
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._keep, name="lease", daemon=True)
        if heart:
            self._heart.start()

    @property
    def since(self) -> float:
        """When it was acquired, in seconds since 1970."""
        return self._mine.since

    @property
    def lost(self) -> bool:
        """Whether someone else has taken it over (this machine slept, or was cut off): the driver must stop."""
        # After a sleep the heart may not have beaten yet, so look.
        if not self._lost and self._now() - self._seen > 2 * self._beat:
            self.renew()
        return self._lost

    def release(self) -> None:
        """Give it back. Harmless when it is lost, and the second time."""
        if self._ended.is_set() or os.getpid() != self._mine.pid:  # a forked child does not hold it
            return
        self._ended.set()
        if self._heart.ident is not None:
            self._heart.join()
        with suppress(OSError), locked(self._folder / LOCK):
            if _is(_read(self._folder), self._mine):
                (self._folder / LEASE).unlink()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def _keep(self) -> None:
        while not self._lost and not self._ended.wait(self._beat):
            self.renew()

    def renew(self) -> None:
        """One heartbeat: say that the holder lives, or find out that another one has it."""
        # A full disk, or one that is away for a while, is no reason to let go.
        with suppress(OSError), locked(self._folder / LOCK):
            there = _read(self._folder)
            if there is not None and not _is(there, self._mine):
                self._lost = True
                return
            if there is None and self._ended.is_set():
                return
            self._seen = self._now()
            try:
                _write(self._folder, replace(self._mine, beat=self._seen))
            except OSError:
                os.utime(self._folder / LEASE)  # takes no room, and counts as a heartbeat too


def acquire(folder: Path, now: Clock = time.time, beat: float = BEAT, heart: bool = True) -> Lease:
    """Become the driver of the run in this folder, made if need be.

    Held, at once, when another living driver has it, in this process or any other; a dead one's lease is taken over.
    Unwritable when the lease cannot be written. `beat` is the time between heartbeats in seconds;
    without a `heart` whoever holds the lease calls its `renew`.
    """
    path = folder / LEASE
    with aside.writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        aside.sweep(folder, 60 * STALE)
        _refuse(folder, now())  # without the lock too: a holder that was stopped may have stopped with it
        with locked(folder / LOCK):
            _refuse(folder, now())
            mine = me(now())
            _write(folder, mine)
    return Lease(folder, mine, now, beat, heart)


def holder(folder: Path, now: Clock = time.time) -> Holder | None:
    """The living driver of the run in this folder, if it has one."""
    for name in (LEASE, ELSEWHERE):
        with suppress(OSError):
            found = _read(folder, name)
            if found is not None and found.alive(now()):
                return found
    return None


def here(holder: Holder) -> bool:
    """Whether a holder's process is one of this machine, so that it can be seen whether it lives."""
    return (holder.host, holder.boot, holder.space) == (socket.gethostname(), _boot(), _space())


def _refuse(folder: Path, now: float) -> None:
    other = _read(folder)
    if other is not None and other.alive(now):
        raise Held(refusal(folder.name, other, now))


def refusal(run: str, other: Holder, now: float) -> str:
    """Who drives a run already, and what to do about it."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(other.since))
    line = f"{run} already has a driver: process {other.pid} on {other.host}, since {since}"
    if other.host == socket.gethostname() and other.space == _space():
        return f"{line}; wait for it to end, or stop it (kill {other.pid}) and try again"
    ago = max(0, round(now - other.beat))
    return f"{line}, heard of {ago} s ago; wait for it to end, or stop it there, and try again {STALE:.0f} s later"


def me(now: float) -> Holder:
    """This process as a holder, with a token of its own."""
    pid = os.getpid()
    token = os.urandom(16).hex()
    return Holder(socket.gethostname(), _boot(), _space(), pid, _started(pid) or "", now, now, token)


def _is(one: Holder | None, other: Holder) -> bool:
    return one is not None and one.token == other.token


def _write(folder: Path, mine: Holder) -> None:
    aside.replace(folder, folder / LEASE, (json.dumps(asdict(mine), indent=1) + "\n").encode())


def _read(folder: Path, name: str = LEASE) -> Holder | None:
    """Who the lease names, alive or not. One that cannot be made out is somebody's, until its file is old."""
    path = folder / name
    try:
        touched = path.stat().st_mtime
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = Holder(**json.loads(data))
        # Where the disk is full the heart can only touch the file.
        return replace(found, pid=int(found.pid), since=float(found.since), beat=max(float(found.beat), touched))
    except (ValueError, TypeError):
        return Holder("an unreadable lease", "", "", 0, "", touched, touched, "")


@cache
def _boot() -> str:
    """What changes when this machine starts again."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return _ask("sysctl", "-n", "kern.boottime")


@cache
def _space() -> str:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _started(pid: int) -> str | None:
    """When a process started, as a text to compare; "" where that cannot be told; None when there is no such process.

    A process that is dead but not yet collected by its parent is none.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return None
    except PermissionError:
        pass  # it is another user's
    if sys.platform != "linux":
        return _ask("ps", "-o", "lstart=", "-p", str(pid))
    try:
        # The name, in brackets, may itself hold blanks and brackets; state and start are fields 3 and 22.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""  # hidden from us, or gone this instant
    return None if fields[0] in "ZX" else fields[19]


def _ask(*command: str) -> str:
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return ""
