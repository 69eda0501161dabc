"""Waiting is reported, at growing intervals; jobs of an idle run are computed here."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from orchestrator.executors.calls import Call, Item
from orchestrator.scheduling.waiting import (
    FLOOR,
    LONGEST,
    OTHERS_SECONDS,
    OWN_SECONDS,
    PATIENCE,
    TIMES,
    UNMEASURED,
    UNPRICED,
    TimeLimits,
    Waiting,
)
from orchestrator.store.holder import this_process
from tests.support.golden import Golden

OTHER = replace(this_process(time.time()), host="another", pid=77)


def test_unmeasured_group_has_no_learned_limit() -> None:
    limits = TimeLimits()
    assert limits.learned_limit({"train": 1}) is None
    limits.learn("train", 3.0)
    assert limits.learned_limit({"train": 1, "score": 1}) is None


@pytest.mark.parametrize(
    ("price", "limit"), [(None, UNPRICED), (1.0, UNMEASURED), (600.0, TIMES * 2 * 600.0)], ids=["no", "low", "high"]
)
def test_first_call_is_limited_by_its_price(price: float | None, limit: float) -> None:
    limits = TimeLimits(price=lambda kind: price)
    assert limits.limit({"train": 2}) == limit
    limits.learn("train", 1.0)
    assert limits.limit({"train": 2}) == FLOOR
    assert limits.limit({"train": 2, "score": 1}) >= UNMEASURED


def test_limit_is_a_multiple_with_a_floor() -> None:
    limits = TimeLimits()
    for seconds in (90.0, 100.0, 5.0):
        limits.learn("train", seconds)
    limits.learn("score", 0.001)
    assert limits.limit({"score": 64}) == FLOOR
    assert limits.limit({"train": 3}) == TIMES * 300.0


def test_given_limit_applies_to_every_job() -> None:
    limits = TimeLimits(7.0)
    limits.learn("train", 1000.0)
    assert limits.limit({"train": 1, "score": 1}) == 14.0


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def waiting(lines: list[str]) -> Waiting:
    return Waiting(lines.append)


def test_waiting_is_reported_at_growing_intervals(waiting: Waiting, lines: list[str]) -> None:
    claims = {"toys-1": (OTHER, {"a", "b", "c"}, 0.0)}
    report_seconds = []
    for second in range(24 * 3600):
        before = len(lines)
        waiting.report_elsewhere(float(second), claims, {"a", "b", "z"})
        if len(lines) > before:
            report_seconds.append(second)
    assert lines[0].startswith(
        "waiting for 10 s for toys-1 (process 77 on another; 2 jobs), which compute jobs that this run also needs; "
        "after 10 min without progress, this run computes them itself"
    )
    apart = [after - before for before, after in zip([0, *report_seconds], report_seconds, strict=False)]
    assert report_seconds[0] == OTHERS_SECONDS
    assert sorted(apart) == apart
    assert apart[-1] == LONGEST
    assert len(report_seconds) < 35


def test_missing_machines_are_named(waiting: Waiting, lines: list[str], golden: Golden) -> None:
    for lacking in ("GPU", "processor", "machine with 5 GPUs, 1 processor"):
        waiting.reset("machine")
        for second in (0.0, 10.0):
            waiting.report_machine(second, lacking)
    golden(lines)


def test_progress_resets_the_waiting_time(waiting: Waiting, lines: list[str]) -> None:
    for second in range(100):
        if not second % 5:
            waiting.reset("elsewhere")
        waiting.report_elsewhere(float(second), {}, set())
    assert lines == []


def test_silent_calls_are_named(waiting: Waiting, lines: list[str]) -> None:
    old = Call(1, "toys.part", (Item("12ab", "toys:part", None),))
    new = Call(1, "toys.part", (Item("34cd", "toys:part", None),))
    for second in range(int(OWN_SECONDS) + 2):
        waiting.report_running(float(second), [(old, second + 0.0), (new, 1.0)], lambda call: 3600.0)
    assert lines == [
        "no call has returned for 5 min; 2 calls running, the oldest for 5 min: toys.part 12ab; "
        "no similar job has ended yet, so it is ended and sent again after 1 h; "
        "set a shorter limit with `--timeout`, such as 10m"
    ]


def test_jobs_of_an_idle_run_are_computed_here(waiting: Waiting, lines: list[str]) -> None:
    def deferred(idle: float, longest: float | None = None) -> set[str]:
        return waiting.deferred_keys({"toys-1": (OTHER, {"a", "b"}, idle)}, lambda keys: longest)

    assert deferred(PATIENCE) == {"a", "b"}
    # its jobs may take that long
    assert deferred(PATIENCE + 1, longest=3600.0) == {"a", "b"}
    assert set() == deferred(PATIENCE + 1)
    assert set() == deferred(PATIENCE + 2)
    assert lines == [
        "toys-1 (process 77 on another) has made no progress for 10 min 1 s; "
        "computing the 2 jobs that it shares with this run"
    ]
    assert deferred(0.0) == {"a", "b"}
