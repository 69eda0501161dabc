"""The expected time to the end of a run, by what jobs of each kind cost and how many run at a time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

LATEST = 50  # jobs of a kind from which its cost is learnt
WEIGHT = 5  # jobs on each slot that the number of slots counts for, beside those that have ended
LITTLE = 1.0  # seconds of prices below which what jobs took says nothing of the other prices
ENOUGH = 2  # jobs after which what they took counts, and not what earlier runs took: the first one loads libraries


@dataclass
class Kind:
    """Jobs that take about as long as one another: how many are to do, and the seconds of one, where that is known."""

    to_do: int = 0
    expected: float | None = None  # from earlier runs
    priced: float | None = None  # from what is known of other machines
    taken: list[float] = field(default_factory=list)  # of the latest ones in this run

    @property
    def cost(self) -> float | None:
        """Seconds of one job; None while nothing is known of any."""
        if self.taken and (self.expected is None or len(self.taken) >= ENOUGH):
            return statistics.median(self.taken)
        return self.expected


class TimeLeft:
    """Counts jobs down by kind; all times are seconds of one clock.

    `kinds` gives for each kind the jobs to do, and the expected seconds of one, None where no run has timed one. For
    those `prices` has the seconds by which the plan was priced, if any: they count times what the jobs that have ended
    took of their own prices.
    """

    def __init__(
        self, kinds: Mapping[str, tuple[int, float | None]], prices: Mapping[str, float] | None = None
    ) -> None:
        self._kinds = {name: Kind(count, seconds, (prices or {}).get(name)) for name, (count, seconds) in kinds.items()}
        self._taken = self._priced = 0.0  # seconds of the jobs that have ended and had a price, and their prices
        self._slots: int | None = None
        self._since: float | None = None  # when the executor was ready
        self._at: float | None = None  # the time of the last news
        self._spent = 0.0  # seconds of all jobs that have ended
        self._ended = 0

    def ready(self, now: float, slots: int | None) -> None:
        """The executor is ready for so many jobs at a time; None where that is not known."""
        self._slots, self._since, self._at = slots, now, now

    def done(self, kind: str, seconds: float, now: float) -> None:
        """A job has ended."""
        entry = self._kinds.setdefault(kind, Kind())
        entry.to_do = max(0, entry.to_do - 1)
        entry.taken = [*entry.taken, seconds][-LATEST:]
        if entry.priced is not None:
            self._taken += seconds
            self._priced += entry.priced
        self._spent += seconds
        self._ended += 1
        self._at = now

    def drop(self, kind: str) -> None:
        """A job will not be computed: it has failed, or its result is there."""
        if kind in self._kinds:
            self._kinds[kind].to_do = max(0, self._kinds[kind].to_do - 1)

    def again(self, kind: str) -> None:
        """A result was lost, and is to be computed again."""
        self._kinds.setdefault(kind, Kind()).to_do += 1

    @property
    def whole(self) -> bool:
        """Whether the cost of every kind that is to do is known; otherwise `seconds` is the least that it takes."""
        return all(self._cost(kind) is not None for kind in self._kinds.values() if kind.to_do)

    def seconds(self, now: float) -> float | None:
        """Expected seconds to the end; None while the cost of nothing that is to do is known.

        The work that is left by the number of jobs at a time. Between two ends of jobs it runs down with the clock.
        """
        costs = [(kind.to_do, self._cost(kind)) for kind in self._kinds.values() if kind.to_do]
        known = [count * cost for count, cost in costs if cost is not None]
        if not known:
            return 0.0 if not any(kind.to_do for kind in self._kinds.values()) else None
        passed = 0.0 if self._at is None else now - self._at
        return max(0.0, sum(known) / self._concurrency(now) - passed)

    def _cost(self, kind: Kind) -> float | None:
        """Seconds of one job: as jobs of its kind took, here or in this run; else its price, scaled; else None."""
        if kind.cost is not None or kind.priced is None:
            return kind.cost
        return kind.priced * (self._taken / self._priced if self._priced > LITTLE else 1.0)

    def _concurrency(self, now: float) -> float:
        """Jobs at a time: seconds of work per second that has passed.

        In the beginning jobs run that are not counted yet; so WEIGHT jobs on each slot are added to those that ended.
        """
        if self._since is None or not self._ended:
            return float(self._slots or 1)
        busy = (now if self._at is None else self._at) - self._since
        extra = WEIGHT * self._spent / self._ended if self._slots else 0.0
        worked, passed = self._spent + extra * (self._slots or 0), busy + extra
        return worked / passed if worked > 0 and passed > 0 else 1.0
