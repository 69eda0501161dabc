"""The other living runs of a store: what an earlier one computes need not be computed here."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from orchestrator import lease
from orchestrator.errors import StoreError
from orchestrator.journal import Journal


class Neighbours:
    """The runs in a folder of runs that living drivers have held for longer than `since`, `own` ones left out.

    Which of two runs is the earlier one is the same question to both, so that one of them computes what they share.
    """

    def __init__(self, runs: Path, own: Collection[str], since: float, now: Callable[[], float] = time.time) -> None:
        self._runs = runs
        self._own = own
        self._now = now
        self._since = (since, min(own))
        self._keys: dict[str, frozenset[str]] = {}  # by run; a plan does not change

    def claimed(self, ours: set[str]) -> set[str]:
        """Those of our keys that an earlier living run has planned."""
        theirs: set[str] = set()
        for folder in self._earlier():
            if folder.name not in self._keys:
                self._keys[folder.name] = frozenset()
                with suppress(StoreError):  # a plan that cannot be read claims nothing, and stops no other run
                    self._keys[folder.name] = frozenset(Journal(folder).tasks())
            theirs |= ours & self._keys[folder.name]
        return theirs

    def _earlier(self) -> Iterator[Path]:
        for path in self._runs.glob(f"*/{lease.LEASE}"):
            folder = path.parent
            if folder.name in self._own:
                continue
            holder = lease.holder(folder, self._now)
            if holder is not None and (holder.since, folder.name) < self._since:
                yield folder
