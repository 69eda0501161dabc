"""A driver's clock, the time limits of its calls, and its messages while it waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.executors.calls import Call
from orchestrator.quantities import format_count, format_duration
from orchestrator.store.holder import Holder

FLOOR = 600.0  # minimum limit of any call in seconds; a worker may first have to load, compile or wait for a slow disk
TIMES = 20.0  # limit as a multiple of the longest job of the same kind in this run
UNMEASURED = 3600.0  # minimum limit in seconds until a job of the same kind has ended
UNPRICED = 86400.0  # limit in seconds until then if there is no price
# Seconds of waiting before the first message: for other runs or machines, and for our own calls.
OTHERS_SECONDS = 10.0
OWN_SECONDS = 300.0
GROWTH = 3.0  # ratio of the times of successive messages
LONGEST = 3600.0  # maximum seconds between two messages
PATIENCE = FLOOR  # seconds without progress of another run after which jobs shared with it are computed here

# By run: its driver, the shared keys, and the seconds without progress.
Claims = Mapping[str, tuple[Holder, set[str], float]]


PriceOfGroup = Callable[[str], float | None]  # maximum seconds per job of a group, None if unknown


@dataclass(frozen=True)
class Clock:
    """A clock. `now` is in seconds since 1970, and `monotonic` in seconds since any fixed time."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


SYSTEM = Clock()


def unknown_price(_group: str) -> float | None:
    """Default price function. Returns None for every group."""
    return None


class TimeLimits:
    """Time limits of calls in seconds: `configured_limit` per job, or learned from jobs of the same kinds.

    Only jobs from this start of the run count, because an earlier start may have had faster machines. `price` returns
    the maximum expected seconds for a job of a kind, or None if nothing similar was ever timed. It limits kinds of
    which no job has ended yet.
    """

    def __init__(self, configured_limit: float | None = None, price: PriceOfGroup = unknown_price) -> None:
        self._configured_limit = configured_limit
        self._price = price
        self._longest: dict[str, float] = {}

    def learn(self, kind: str, seconds: float) -> None:
        self._longest[kind] = max(seconds, self._longest.get(kind, 0.0))

    @property
    def minimum(self) -> float:
        """The minimum limit of every call in seconds."""
        if self._configured_limit is None:
            return FLOOR
        return self._configured_limit

    def learned_limit(self, jobs: Mapping[str, int]) -> float | None:
        """Return the limit in seconds for this many jobs of these kinds in sequence.

        Returns None unless all kinds are known.
        """
        if self._configured_limit is not None:
            return self._configured_limit * sum(jobs.values())
        if not jobs.keys() <= self._longest.keys():
            return None
        return max(FLOOR, TIMES * sum(count * self._longest[kind] for kind, count in jobs.items()))

    def limit(self, jobs: Mapping[str, int]) -> float:
        """Return the limit in seconds, using prices for kinds of which no job has ended.

        In that case the limit is at least an hour, or a day if there is no price.
        """
        learned = self.learned_limit(jobs)
        if learned is not None:
            return learned
        seconds = 0.0
        for kind, count in jobs.items():
            kind_seconds = self._longest.get(kind)
            if kind_seconds is None:
                kind_seconds = self._price(kind)
            if kind_seconds is None:
                return UNPRICED
            seconds += count * kind_seconds
        return max(UNMEASURED, TIMES * seconds)


class Waiting:
    """Reports why a driver is waiting, at increasing intervals, until something happens."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._wait_starts: dict[str, float] = {}
        self._next: dict[str, float] = {}
        self._given_up: set[str] = set()

    def reset(self, subject: str) -> None:
        """End a wait because an event occurred or the wait has no reason any more."""
        self._wait_starts.pop(subject, None)

    def record_waiting(self, subject: str, now: float, first: float, line: Callable[[str], str]) -> None:
        """Record that the driver is still waiting. `line` formats the message from the duration."""
        if subject not in self._wait_starts:
            self._wait_starts[subject], self._next[subject] = now, first
        seconds_waited = now - self._wait_starts[subject]
        if seconds_waited >= self._next[subject]:
            self._next[subject] = seconds_waited + min(LONGEST, max(first, seconds_waited) * (GROWTH - 1))
            self._report(line(format_duration(seconds_waited)))

    def deferred_keys(self, claims: Claims, longest: Callable[[set[str]], float | None]) -> set[str]:
        """Return the keys to leave to runs that made progress within their jobs' time limit, or PATIENCE if that is
        longer.

        Two runs that compute the same jobs are harmless. A run that waits forever for a stopped or hung one is not.
        """
        keys: set[str] = set()
        for run, (holder, shared, idle) in claims.items():
            if idle <= max(PATIENCE, longest(shared) or 0.0):
                self._given_up.discard(run)
                keys |= shared
            elif run not in self._given_up:
                self._given_up.add(run)
                self._report(
                    f"{run} ({holder.name}) has made no progress for {format_duration(idle)}; "
                    f"computing the {format_count(len(shared), 'job')} that it shares with this run"
                )
        return keys

    def report_elsewhere(self, now: float, claims: Claims, remaining_keys: set[str]) -> None:
        """Report that other runs are computing all remaining jobs."""
        runs = {}
        for run, (holder, shared, _) in claims.items():
            if shared & remaining_keys:
                runs[run] = (holder, len(shared & remaining_keys))
        driver_list = ", ".join(
            f"{run} ({holder.name}; {format_count(jobs, 'job')})" for run, (holder, jobs) in runs.items()
        )
        self.record_waiting(
            "elsewhere",
            now,
            OTHERS_SECONDS,
            lambda time: (
                f"waiting for {time} for {driver_list or 'other runs'}, which compute jobs that this run also needs; "
                f"after {format_duration(PATIENCE)} without progress, this run computes them itself"
            ),
        )

    def report_machine(self, now: float, lacking: str) -> None:
        """Report that calls are waiting for what is `lacking`: a GPU, a processor or a machine with several of them."""
        if lacking.startswith("machine"):
            machine = "one"
        else:
            machine = f"a machine with a {lacking}"
        hint = ""
        if lacking == "GPU":
            hint = "; with `--gpus none` they run on processors"
        self.record_waiting(
            "machine",
            now,
            OTHERS_SECONDS,
            lambda time: (
                f"calls have been waiting for {time} for a {lacking}, which the cluster does not have; they begin "
                f"when {machine} joins{hint}"
            ),
        )

    def report_running(
        self, now: float, calls: Sequence[tuple[Call, float]], unmeasured: Callable[[Call], float | None]
    ) -> None:
        """Report the running calls and how long each has been running.

        `unmeasured` returns a call's time limit if no similar job has ended yet. Such a limit is long.
        """

        def line(time: str) -> str:
            oldest, seconds = max(calls, key=lambda call: call[1])
            limit = unmeasured(oldest)
            hint = ""
            if limit is not None:
                hint = (
                    f"; no similar job has ended yet, so it is ended and sent again after {format_duration(limit)}; "
                    "set a shorter limit with `--timeout`, such as 10m"
                )
            return (
                f"no call has returned for {time}; {format_count(len(calls), 'call')} running, the oldest for "
                f"{format_duration(seconds)}: {oldest.task} {oldest.items[0].key[:12]}{hint}"
            )

        self.record_waiting("here", now, OWN_SECONDS, line)
