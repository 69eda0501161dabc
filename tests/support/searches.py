"""A search as its user makes it, small, and once for all tests that look at one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.shell import Here

# The trainings at rate 0.006 memorise less than the start, and one trial is the start itself. They take no time.
ASKED = ("search", "tunable", "noise=0.01", "--sampler", "grid", "--give-up", "0.1")
OVER = ("--over", "rate=0.006,0.01", "--over", "wide=false,true")


class Made(NamedTuple):
    """The store of a search that has ended, its name there, and what the command told."""

    store: Path
    name: str
    told: dict[str, Any]

    def copied(self, to: Path) -> Made:
        """The same in a store of its own, to write into."""
        shutil.copytree(self.store, to / "engram-store")
        return self._replace(store=to / "engram-store")


def search(folder: Path, address: str) -> Made:
    """A finished search of four trials, whose winner is recommended."""
    told = Here(folder).json(*ASKED, *OVER, "--address", address)
    return Made(folder / "engram-store", told["run"], told)
