"""The holder of a run: a driver process, identified exactly so that a dead one on this machine is detected at once.

A machine is identified by its host name and boot id. The kernel generates the boot id at each boot, which distinguishes
two machines that share a disk and a host name. A holder with our host name but another boot id may be this machine
before its last boot, or another machine. The heartbeat then decides, which delays a rebooted machine by at most a
minute. The machine id (`/etc/machine-id`) would save this minute, but it is copied along with machine and container
images.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

STALE = 60.0  # seconds without a heartbeat after which a holder on another machine counts as dead


@dataclass(frozen=True)
class Holder:
    """A driver process. `started` is its start as reported by the system; `since` is in seconds since 1970."""

    host: str
    boot: str  # changes at each boot
    space: str  # the process's namespaces, because pid and start are meaningless in another container
    pid: int
    started: str
    since: float
    token: str  # unique to this acquisition

    def alive(self, seconds_silent: float) -> bool:
        """Whether this driver is still running, judged on this machine.

        `seconds_silent` is the time since its last heartbeat.
        """
        if is_local(self):
            started = _start_time(self.pid)
            return started is not None and ("" in (started, self.started) or started == self.started)
        return seconds_silent <= STALE

    @property
    def name(self) -> str:
        """The process name used in messages."""
        return f"process {self.pid} on {self.host}"


def this_process(now: float) -> Holder:
    """Return this process as a holder with a new token."""
    pid = os.getpid()
    token = os.urandom(16).hex()
    return Holder(socket.gethostname(), _boot(), _space(), pid, _start_time(pid) or "", now, token)


def is_local(holder: Holder) -> bool:
    """Whether a holder's process is on this machine, where its existence can be checked."""
    this_machine = (socket.gethostname(), _boot(), _space())
    return (holder.host, holder.boot, holder.space) == this_machine and bool(holder.boot)


def refusal(run: str, holder: Holder, seconds_silent: float) -> str:
    """Return the message that a run already has a driver, with the age of its last heartbeat and a remedy."""
    start = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
    line = f"{run} already has a driver: {holder.name}, since {start}"
    if is_local(holder):
        return f"{line}; wait for it to end, or stop it (kill {holder.pid}) and try again"
    seconds_ago = max(0, round(seconds_silent))
    return (
        f"{line}, last heartbeat {seconds_ago} s ago; wait for it to end, or stop it there and try again after "
        f"{STALE:.0f} s"
    )


def takeover_message(run: str, holder: Holder | None) -> str:
    """Return the message that another driver has taken over a run from this process."""
    current_driver = "another driver has driven it since"
    if holder:
        current_driver = f"{holder.name} drives it now"
    return (
        f"{run} was taken over while this process was stopped or disconnected: {current_driver}; the results from "
        "here are kept"
    )


@cache
def _boot() -> str:
    """Return the boot id, which changes at each boot."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return _ask("sysctl", "-n", "kern.boottime")


@cache
def _space() -> str:
    """Return the namespaces to which a pid and its start time refer.

    In another time namespace (a container with its own clock), the same process has a different start time.
    """
    with suppress(OSError):
        return " ".join(os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "time") if _has_namespace(kind))
    return ""


def _has_namespace(kind: str) -> bool:
    """Whether this kernel has namespaces of this kind (time namespaces since Linux 5.6)."""
    return os.path.lexists(f"/proc/self/ns/{kind}")


def _start_time(pid: int) -> str | None:
    """Return a process's start time as comparable text. Returns "" if unknown, and None if there is no such process.

    A zombie process counts as nonexistent.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return None
    except PermissionError:
        pass  # it belongs to another user
    if sys.platform != "linux":
        return _ask("ps", "-o", "lstart=", "-p", str(pid))
    try:
        # The name, in parentheses, may itself contain blanks and parentheses. State and start are fields 3 and 22.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""  # hidden from us, or just ended
    return None if fields[0] in "ZX" else fields[19]


def _ask(*command: str) -> str:
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return ""
