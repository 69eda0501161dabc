"""Simulated worlds: what becomes of a run when its driver, workers, machines and disk fail, in virtual time.

What each world has to keep to is in `tests.support.simulation`: exactly the planned results at the end, each sound;
nothing computed again that is stored, but for what was on its way when somebody died; never two drivers under living
leases; every start ends as what became of it. ENGRAM_WORLDS says how many worlds to try, in place of
the few always tried.
"""

from __future__ import annotations

import os
from collections import Counter

from tests.support.simulation import simulate

WORLDS = int(os.environ.get("ENGRAM_WORLDS", "0")) or 40


def test_no_simulated_world_breaks_a_rule() -> None:
    seen: Counter[str] = Counter()
    for seed in range(WORLDS):
        world = simulate(seed)
        for process in world.processes:
            state = process.report.state if process.report else "refused" if process.held else "killed"
            seen[state] += 1
        seen["harmed"] += sum(world.harms.values())
        seen["workers died"] += sum(world.deaths.values())
        seen["deposed"] += sum(process.deposed for process in world.processes)
    # All of it happens.
    assert {"finished", "failed", "interrupted", "paused", "refused", "killed"} <= seen.keys()
    assert all(seen.values())
