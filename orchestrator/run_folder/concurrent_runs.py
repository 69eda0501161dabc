"""The other living runs of a store: keys that an earlier one computes need not be computed here."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.run_folder.journal import Journal
from orchestrator.store import lease
from orchestrator.store.holder import Holder


@dataclass
class Other:
    """An earlier run with a living driver: its keys, and when its log last grew, by this machine's clock."""

    holder: Holder
    keys: frozenset[str]
    size: int
    since: float


class ConcurrentRuns:
    """The runs in a folder of runs that living drivers have held since before `since`, without `own` ones.

    Two runs agree on which of them is the earlier one, so that exactly one computes their shared keys. Only the files
    of living drivers are read, however many runs have ended.
    """

    def __init__(
        self,
        runs: Path,
        own: Collection[str],
        since: float,
        now: lease.Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs = runs
        self._own = own
        self._now = now
        self._monotonic = monotonic
        self._since = (since, min(own))
        self._others: dict[str, Other] = {}

    def find_claims(self, ours: set[str]) -> Mapping[str, tuple[Holder, set[str], float]]:
        """Earlier living runs that plan some of our keys: by run the driver, those keys, and its seconds of inactivity.

        A driver is active while its log grows; the seconds count from the last growth observed here.
        """
        now = self._monotonic()
        claims = {}
        for run, holder in lease.living_drivers(self._runs, self._now):
            if run in self._own or (holder.since, run) >= self._since:
                continue
            other = self._others.get(run)
            if other is None or other.holder.token != holder.token:
                keys = other.keys if other else self._planned_keys(run)  # a plan does not change
                other = self._others[run] = Other(holder, keys, -1, now)
            shared = ours & other.keys
            if shared:
                size = self._size(run)
                if size != other.size:
                    other.size, other.since = size, now
                claims[run] = (holder, shared, now - other.since)
        return claims

    def _planned_keys(self, run: str) -> frozenset[str]:
        """The planned keys of a run; empty if its plan cannot be read, so that it stops no other run."""
        try:
            return frozenset(Journal(self._runs / run).tasks())
        except StoreError:
            return frozenset()

    def _size(self, run: str) -> int:
        try:
            return (self._runs / run / "events.jsonl").stat().st_size
        except OSError:
            return 0
