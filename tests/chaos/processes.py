"""Faults of processes: drivers, workers, nodes and heads are killed, and a driver is stopped past its lease."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.cluster import NODES, RayCluster
from tests.chaos.rounds import SILENT, Process, Round
from tests.support.forks import PATHS

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), Path("/nowhere"))
# Under libfaketime 0.9.10 Python's own sleep is refused as an invalid argument.
SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds) and None\n"
LEFT = 10.0  # seconds after which no process of a killed run may be left
JOINING = 60.0  # seconds after which other nodes join
ELSEWHERE = ["unshare", "--uts", "bash", "-c", 'hostname "$0" && exec "$@"']  # then a host name and the command


def kill_driver(each: Round) -> str:
    """SIGKILL, whatever it is doing."""
    driver = each.start()
    stored = each.await_share(driver)
    driver.kill()
    driver.wait()
    return f"{stored} stored"


def kill_local_driver(each: Round) -> str:
    """SIGKILL to a driver that has a cluster of its own, of which no process may be left 10 s later."""
    mark = f"{each.folder.name}-{os.getpid()}"
    each.environment["CHAOS"], each.address = mark, "local"
    told = kill_driver(each)
    limit = time.monotonic() + LEFT
    while any(marked(mark)) and time.monotonic() < limit:
        time.sleep(0.1)
    if left := [*marked(mark)]:
        each.problems.append(f"{len(left)} processes of the killed run are left after {LEFT:.0f} s")
    each.address = "none"
    return told


def outlast(each: Round, driver: Process, cluster: RayCluster) -> None:
    """Wait for the driver's end; if no node is left, which Ray's head on a busy machine may decide, others join."""
    limit = time.monotonic() + JOINING
    while driver.poll() is None and time.monotonic() < limit:
        time.sleep(0.1)
    if driver.poll() is None:
        cluster.restore()
    each.end(driver)


def kill_worker(each: Round, cluster: RayCluster) -> str:
    driver = each.start()
    stored = each.await_share(driver, 0.9)
    workers = cluster.workers()
    if workers:
        each.rng.choice(workers).kill()
    outlast(each, driver, cluster)
    return f"{stored} stored, one of {len(workers)} workers"


def kill_node(each: Round, cluster: RayCluster) -> str:
    driver = each.start()
    stored = each.await_share(driver, 0.9)
    cluster.kill(name := each.rng.choice(list(NODES)))
    outlast(each, driver, cluster)
    return f"{stored} stored, {name}"


def kill_head(each: Round, cluster: RayCluster) -> str:
    driver = each.start()
    stored = each.await_share(driver, 0.9)
    cluster.kill("head")
    said = each.end(driver)
    return f"{stored} stored, the driver ended with {said.returncode}"


def faked_clock(each: Round, **more: str) -> dict[str, str]:
    """The environment of a process whose wall clock is another one; its monotonic clock is this machine's."""
    (folder := each.folder / "faked").mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SLEEP)
    paths = {"PYTHONPATH": f"{PATHS}{os.pathsep}{folder}"}
    return {"LD_PRELOAD": str(LIBRARY), "FAKETIME_DONT_FAKE_MONOTONIC": "1", **paths, **more}


def pause_driver(each: Round) -> str:
    """Stopped on another machine for longer than its lease; another driver finishes the run; then it goes on."""
    clock = each.folder / "clock"
    clock.write_text("+0")
    fake = faked_clock(each, FAKETIME_TIMESTAMP_FILE=str(clock), FAKETIME_NO_CACHE="1")
    driver = each.start([*ELSEWHERE, "elsewhere"], **fake)
    stored = each.await_share(driver, 0.9)
    os.kill(driver.pid, signal.SIGSTOP)
    each.pass_time()
    clock.write_text(f"+{SILENT:.0f}")
    other = each.end(each.start())
    os.kill(driver.pid, signal.SIGCONT)
    ended = each.end(driver)
    if 0 not in (other.returncode, ended.returncode):
        each.problems.append(f"nobody finished: {other.stderr[-300:]} {ended.stderr[-300:]}")
    return f"{stored} stored, then {other.returncode} and {ended.returncode}"


def marked(mark: str, title: str = "") -> Iterator[int]:
    """The living processes that carry the mark in their environment, and whose command line starts with the title."""
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit():
            try:
                titled = (proc / "cmdline").read_bytes().startswith(title.encode())
                if titled and mark.encode() in (proc / "environ").read_bytes():
                    yield int(proc.name)
            except OSError:
                continue
