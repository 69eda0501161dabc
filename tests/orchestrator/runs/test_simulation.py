"""Simulated worlds: runs whose driver, workers, machines and disk fail, in virtual time.

The rules of each world are in `tests.support.simulation`: finally exactly the planned results, each sound; no stored
result is computed again, except for jobs in progress at a crash; never two drivers with valid leases; every start
reports its true state. ENGRAM_WORLDS sets the number of worlds.
"""

from __future__ import annotations

import os
from collections import Counter

from tests.support.simulation import simulate

WORLDS = int(os.environ.get("ENGRAM_WORLDS", "0")) or 40


def test_no_simulated_world_breaks_a_rule() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(WORLDS):
        world = simulate(seed)
        for process in world.processes:
            if process.report:
                state = process.report.state
            elif process.held:
                state = "refused"
            else:
                state = "killed"
            outcomes[state] += 1
        outcomes["harmed"] += sum(world.harms.values())
        outcomes["workers died"] += sum(world.deaths.values())
        outcomes["deposed"] += sum(process.deposed for process in world.processes)
    # All of it happens.
    assert outcomes.keys() >= {"finished", "failed", "interrupted", "paused", "refused", "killed"}
    assert all(outcomes.values())
