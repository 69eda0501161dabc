"""Run one shell command as a job: in its own process group, with its output in files, until it ends.

A line `engram: step=3 loss=0.21` on standard output logs metrics. If the run is stopped, the command gets SIGTERM and,
after GRACE seconds, SIGKILL. If the worker itself is killed, a guard kills the command (`tasks.worker.process_guard`).
"""

from __future__ import annotations

import math
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from tasks.worker.job_services import JobServices, ProgramDied, RunStopped
from tasks.worker.process_guard import Guard, marked_processes

GRACE = 4.0  # seconds between SIGTERM and SIGKILL; a run that is being stopped gives its jobs 5 s
WORKER_MARK = "ENGRAM_WORKER"  # marks the programs of one worker
JOB_MARK = "ENGRAM_JOB"  # marks the processes of one job
THREADS = ("_NUM_THREADS", "_MAXIMUM_THREADS")  # ends of the variables with the threads of numerical libraries
LOOK = 1.0  # seconds between two looks at the output of a running command
LAST_LINES = 20
TAIL_BYTES = 16 * 1024
SHELL_SIGNAL = 128  # a shell exits with 128 plus the signal that ended its command
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGHUP, signal.SIGINT)
METRICS = re.compile(rb"^engram:((?:\s+[A-Za-z_][\w./-]*=\S+)+)\s*$")


class ProgramFailed(RuntimeError):
    """The program ended with a non-zero exit code, or did not keep its contract."""


def run_command(command: str, folder: Path, variables: Mapping[str, str], output: Path, services: JobServices) -> None:
    """Run the command in this folder, and wait until it ends. `output` receives the files `stdout` and `stderr`.

    Raises ProgramFailed, with the last lines of its output, for a non-zero exit code, ProgramDied if a signal ended it,
    and RunStopped if the run is being stopped. Whatever happens, no process of the command remains.
    """
    job_mark = os.urandom(16).hex()
    marks = {**_guard().variables, JOB_MARK: job_mark, "PYTHONUNBUFFERED": "1"}
    environment = {**_with_threads(services.cpus), **variables, **marks}
    kills_before = _count_memory_kills()
    with (output / "stdout").open("ab") as stdout, (output / "stderr").open("ab") as stderr:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            pass_fds=services.inherited,
        )
    try:
        _follow(process, output / "stdout", services)
    finally:
        if process.returncode is None:
            _terminate(process, job_mark)
        else:
            _kill_group(process.pid, signal.SIGKILL)  # what the command left behind
    _check_exit(process.returncode, output, kills_before)


def _with_threads(cpus: int) -> dict[str, str]:
    """Return this process's environment, in which libraries use one thread per processor of the job.

    Workers themselves use one thread. With 0 processors, libraries choose the number of threads.
    """
    environment = dict(os.environ)
    for name in os.environ:
        if name.endswith(THREADS):
            del environment[name]
            if cpus:
                environment[name] = str(cpus)
    return environment


@cache
def _guard() -> Guard:
    """Return the guard of this process, which kills the programs of this process when it ends."""
    return Guard(WORKER_MARK, is_tracking=False)


def _follow(process: subprocess.Popen[bytes], stdout: Path, services: JobServices) -> None:
    """Wait for the process. Meanwhile, log the metrics that it prints, and save its state."""
    lines = _read_lines(stdout)
    step = 0
    waiting = select.poll()
    descriptor = os.pidfd_open(process.pid)
    try:
        waiting.register(descriptor, select.POLLIN)
        is_running = True
        while is_running:
            is_running = not waiting.poll(LOOK * 1000)
            for line in next(lines):
                step = log_line(line, step, services)
            if is_running:
                services.save_state()
                if services.is_stopping:
                    raise RunStopped("the run is being stopped")
        process.wait()
    finally:
        os.close(descriptor)


def log_line(line: bytes, step: int, services: JobServices) -> int:
    """Log the metrics in a line of output, if it has any. Returns the step for the next line without one."""
    match = METRICS.match(line)
    if match is None:
        return step
    metrics = {}
    for part in match[1].split():
        name, _, text = part.decode().partition("=")
        with suppress(ValueError):
            if math.isfinite(float(text)):
                metrics[name] = float(text)
    given_step = metrics.pop("step", None)
    if given_step is not None:
        step = int(given_step)
    if metrics:
        services.log(metrics, step)
    return step + 1


def _read_lines(path: Path) -> Iterator[list[bytes]]:
    """Yield the complete lines that a growing file has gained since the last time."""
    rest = b""
    with path.open("rb") as file:
        while True:
            *lines, rest = (rest + file.read()).split(b"\n")
            yield lines


def _terminate(process: subprocess.Popen[bytes], job_mark: str) -> None:
    """End the command with all its processes: SIGTERM, and SIGKILL for those that remain after GRACE seconds."""
    _kill_group(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline and (process.poll() is None or _has_group(process.pid)):
        time.sleep(0.02)
    _kill_group(process.pid, signal.SIGKILL)
    if os.path.isdir("/proc/self"):
        for pid in marked_processes(job_mark, JOB_MARK):  # children in sessions of their own
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


def _has_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _kill_group(group: int, number: signal.Signals) -> None:
    with suppress(OSError):
        os.killpg(group, number)


def _check_exit(code: int, output: Path, kills_before: int) -> None:
    """Raise ProgramFailed or ProgramDied unless the exit code is 0."""
    if code == 0:
        return
    number = -code if code < 0 else code - SHELL_SIGNAL
    if number in SIGNALS:
        is_out_of_memory = number == signal.SIGKILL and _count_memory_kills() > kills_before
        cause = "was ended because the host's memory ran out" if is_out_of_memory else "was ended by a signal"
        raise ProgramDied(f"the training program {cause} ({signal.Signals(number).name})", is_out_of_memory)
    stream, lines = _last_lines(output)
    if not lines:
        raise ProgramFailed(f"the training program exited with code {code} and printed nothing")
    failure = ProgramFailed(f"the training program exited with code {code}: {lines[-1]}")
    failure.add_note("\n".join([f"The last lines of its {stream}:", *lines]))  # in the traceback, not in the message
    raise failure


def _last_lines(output: Path) -> tuple[str, list[str]]:
    """Return the last lines of standard error or, if that is empty, of standard output."""
    for stream in ("stderr", "stdout"):
        with (output / stream).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().decode(errors="replace").rstrip().splitlines()
        if lines:
            return stream, lines[-LAST_LINES:]
    return "", []


def _count_memory_kills() -> int:
    """Return how many processes of this machine were killed because memory ran out, or 0 if this is unknown."""
    with suppress(OSError, ValueError), open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
