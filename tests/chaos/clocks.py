"""Faults of clocks: a driver whose wall clock is wrong or fast, and a driver in another time namespace."""

from __future__ import annotations

import os
import signal

import psutil

from tests.chaos.processes import ELSEWHERE, faked_clock
from tests.chaos.rounds import Round

WRONG = ("-3d", "+3d", "-10y", "+10y", "-61m", "+61m", "+0 x20", "+0 x0.2", "-2s", "+90s")
DAY = 86400


def move_clock(campaign_round: Round) -> str:
    """The first or the second driver has a wrong clock. The first is killed, possibly on another machine."""
    moved = campaign_round.rng.choice(WRONG)
    fake = faked_clock(campaign_round, FAKETIME=moved)
    first = campaign_round.rng.random() < 0.5
    prefix = [*ELSEWHERE, "elsewhere"] if campaign_round.rng.random() < 0.5 else []
    driver = campaign_round.start(prefix, **(fake if first else {"FAKETIME": ""}))
    stored_count = campaign_round.await_share(driver)
    driver.kill()
    driver.wait()
    if prefix:  # no process here can see that it is dead
        campaign_round.pass_time()
    if not first:
        campaign_round.end(campaign_round.start(**fake))
    return f"{moved} {'first' if first else 'later'}, {stored_count} stored" + (", elsewhere" if prefix else "")


def enter_time_namespace(campaign_round: Round) -> str:
    """A driver in a container with another clock excludes other drivers while it lives, but not longer."""
    offset = campaign_round.rng.choice((DAY, 100 * DAY, 3600))
    times = (f"--monotonic={offset}", f"--boottime={offset}")
    container = campaign_round.start(["unshare", "--time", "--fork", "--kill-child", *times])
    stored_count = campaign_round.await_share(container, 0.9)
    for driver in psutil.Process(container.pid).children():
        os.kill(driver.pid, signal.SIGSTOP)
    has_lease = campaign_round.lease.exists()
    second = campaign_round.end(campaign_round.start())
    if has_lease and second.returncode == 0:
        campaign_round.problems.append("a second driver ran next to a living one")
    container.kill()
    container.wait()
    campaign_round.pass_time()
    return f"{offset} s, {stored_count} stored, a second driver ended with {second.returncode}"
