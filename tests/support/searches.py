"""A small search that is run once, with the command, for all tests that read one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.shell import Here

# The trainings at rate 0.006 memorise less than the start, and one trial is the start itself. They take no time.
ARGUMENTS = ("search", "tunable", "noise=0.01", "--sampler", "grid", "--give-up", "0.1")
OVER = ("--over", "rate=0.006,0.01", "--over", "wide=false,true")


class FinishedSearch(NamedTuple):
    """The store of a finished search, its name, and the JSON that the command printed."""

    store: Path
    name: str
    printed: dict[str, Any]

    def copy_to(self, folder: Path) -> FinishedSearch:
        """Copy the search to a store in a folder, for tests that change it."""
        shutil.copytree(self.store, folder / "engram-store")
        return self._replace(store=folder / "engram-store")


def search(folder: Path, address: str) -> FinishedSearch:
    """Run a search of four trials, whose winner is recommended."""
    printed = Here(folder).json(*ARGUMENTS, *OVER, "--address", address)
    return FinishedSearch(folder / "engram-store", printed["run"], printed)
