"""Faults of clocks: a driver whose wall clock is wrong or runs fast, and one that was started in another time."""

from __future__ import annotations

import os
import signal

import psutil

from tests.chaos.processes import ELSEWHERE, faked_clock
from tests.chaos.rounds import Round

WRONG = ("-3d", "+3d", "-10y", "+10y", "-61m", "+61m", "+0 x20", "+0 x0.2", "-2s", "+90s")
DAY = 86400


def move_clock(each: Round) -> str:
    """The first driver has a wrong clock, or the second has; the first is killed, and its machine may be another."""
    moved = each.rng.choice(WRONG)
    fake = faked_clock(each, FAKETIME=moved)
    first = each.rng.random() < 0.5
    prefix = [*ELSEWHERE, "elsewhere"] if each.rng.random() < 0.5 else []
    driver = each.start(prefix, **(fake if first else {"FAKETIME": ""}))
    stored = each.await_share(driver)
    driver.kill()
    driver.wait()
    if prefix:  # nobody here can see that it is dead
        each.pass_time()
    if not first:
        each.end(each.start(**fake))
    return f"{moved} {'first' if first else 'later'}, {stored} stored" + (", elsewhere" if prefix else "")


def enter_time_namespace(each: Round) -> str:
    """A driver in a container with a time of its own keeps others out while it lives, and no longer."""
    offset = each.rng.choice((DAY, 100 * DAY, 3600))
    times = (f"--monotonic={offset}", f"--boottime={offset}")
    container = each.start(["unshare", "--time", "--fork", "--kill-child", *times])
    stored = each.await_share(container, 0.9)
    for driver in psutil.Process(container.pid).children():
        os.kill(driver.pid, signal.SIGSTOP)
    held = each.lease.exists()
    second = each.end(each.start())
    if held and second.returncode == 0:
        each.problems.append("a second driver ran beside a living one")
    container.kill()
    container.wait()
    each.pass_time()
    return f"{offset} s, {stored} stored, a second driver ended with {second.returncode}"
