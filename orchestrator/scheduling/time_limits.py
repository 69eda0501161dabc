"""How long calls may take before they are taken to hang."""

from __future__ import annotations

from collections.abc import Iterable

FLOOR = 600.0  # seconds that any call gets: a worker may have to load, compile or wait for a slow disk first
TIMES = 20.0  # of the longest that a job of its kind took in this run, on these machines


class TimeLimits:
    """Time limits of calls in seconds: `given` per job, or learned from jobs of the same groups.

    Only jobs of this start of the run count: an earlier start may have had faster machines.
    """

    def __init__(self, given: float | None = None) -> None:
        self._given = given
        self._longest: dict[str, float] = {}

    def learn(self, kind: str, seconds: float) -> None:
        self._longest[kind] = max(seconds, self._longest.get(kind, 0.0))

    def limit(self, kinds: Iterable[str]) -> float | None:
        """Seconds for jobs of these kinds, one after another; None unless all kinds are known."""
        kinds = list(kinds)
        if self._given is not None:
            return self._given * len(kinds)
        if not all(kind in self._longest for kind in kinds):
            return None
        return max(FLOOR, TIMES * sum(self._longest[kind] for kind in kinds))
