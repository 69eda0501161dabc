"""Faults of processes: drivers, workers, nodes and heads are killed, and a driver is suspended beyond its lease."""

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


def kill_driver(campaign_round: Round) -> str:
    """Send SIGKILL to the driver at a random moment."""
    driver = campaign_round.start()
    stored_count = campaign_round.await_share(driver)
    driver.kill()
    driver.wait()
    return f"{stored_count} stored"


def kill_local_driver(campaign_round: Round) -> str:
    """Kill a driver with a private cluster, of which no process may remain after 10 s."""
    mark = f"{campaign_round.folder.name}-{os.getpid()}"
    campaign_round.environment["CHAOS"], campaign_round.address = mark, "local"
    description = kill_driver(campaign_round)
    limit = time.monotonic() + LEFT
    while any(marked_processes(mark)) and time.monotonic() < limit:
        time.sleep(0.1)
    if remaining_processes := [*marked_processes(mark)]:
        campaign_round.problems.append(
            f"{len(remaining_processes)} processes of the killed run are left after {LEFT:.0f} s"
        )
    campaign_round.address = "none"
    return description


def outlast(campaign_round: Round, driver: Process, cluster: RayCluster) -> None:
    """Wait for the driver's end. If no node is left, which Ray may decide on a busy machine, restore the cluster."""
    limit = time.monotonic() + JOINING
    while driver.poll() is None and time.monotonic() < limit:
        time.sleep(0.1)
    if driver.poll() is None:
        cluster.restore()
    campaign_round.end(driver)


def kill_worker(campaign_round: Round, cluster: RayCluster) -> str:
    driver = campaign_round.start()
    stored_count = campaign_round.await_share(driver, 0.9)
    workers = cluster.workers()
    if workers:
        campaign_round.rng.choice(workers).kill()
    outlast(campaign_round, driver, cluster)
    return f"{stored_count} stored, one of {len(workers)} workers"


def kill_node(campaign_round: Round, cluster: RayCluster) -> str:
    driver = campaign_round.start()
    stored_count = campaign_round.await_share(driver, 0.9)
    cluster.kill(name := campaign_round.rng.choice(list(NODES)))
    outlast(campaign_round, driver, cluster)
    return f"{stored_count} stored, {name}"


def kill_head(campaign_round: Round, cluster: RayCluster) -> str:
    driver = campaign_round.start()
    stored_count = campaign_round.await_share(driver, 0.9)
    cluster.kill("head")
    driver_result = campaign_round.end(driver)
    return f"{stored_count} stored, the driver ended with {driver_result.returncode}"


def faked_clock(campaign_round: Round, **more: str) -> dict[str, str]:
    """The environment of a process with another wall clock. Its monotonic clock is the machine's."""
    (folder := campaign_round.folder / "faked").mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SLEEP)
    paths = {"PYTHONPATH": f"{PATHS}{os.pathsep}{folder}"}
    return {"LD_PRELOAD": str(LIBRARY), "FAKETIME_DONT_FAKE_MONOTONIC": "1", **paths, **more}


def pause_driver(campaign_round: Round) -> str:
    """Suspend a driver elsewhere beyond its lease. Another driver finishes the run; then the first continues."""
    clock = campaign_round.folder / "clock"
    clock.write_text("+0")
    fake = faked_clock(campaign_round, FAKETIME_TIMESTAMP_FILE=str(clock), FAKETIME_NO_CACHE="1")
    driver = campaign_round.start([*ELSEWHERE, "elsewhere"], **fake)
    stored_count = campaign_round.await_share(driver, 0.9)
    os.kill(driver.pid, signal.SIGSTOP)
    campaign_round.pass_time()
    clock.write_text(f"+{SILENT:.0f}")
    second = campaign_round.end(campaign_round.start())
    os.kill(driver.pid, signal.SIGCONT)
    ended = campaign_round.end(driver)
    if 0 not in (second.returncode, ended.returncode):
        campaign_round.problems.append(f"nobody finished: {second.stderr[-300:]} {ended.stderr[-300:]}")
    return f"{stored_count} stored, then {second.returncode} and {ended.returncode}"


def marked_processes(mark: str, title: str = "") -> Iterator[int]:
    """The living processes that carry the mark in their environment, and whose command line starts with the title."""
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit():
            try:
                titled = (proc / "cmdline").read_bytes().startswith(title.encode())
                if titled and mark.encode() in (proc / "environ").read_bytes():
                    yield int(proc.name)
            except OSError:
                continue
