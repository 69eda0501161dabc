from __future__ import annotations

from orchestrator.scheduling.waiting import FLOOR, TIMES, TimeLimits


def test_what_was_never_measured_has_no_limit() -> None:
    limits = TimeLimits()
    assert limits.limit(["train"]) is None
    limits.learn("train", 3.0)
    assert limits.limit(["train", "score"]) is None


def test_a_limit_is_many_times_the_longest_and_minutes_at_least() -> None:
    limits = TimeLimits()
    for seconds in (90.0, 100.0, 5.0):
        limits.learn("train", seconds)
    limits.learn("score", 0.001)
    assert FLOOR == limits.limit(["score"] * 64)
    assert TIMES * 300.0 == limits.limit(["train"] * 3)


def test_a_given_limit_is_that_of_each_job_known_or_not() -> None:
    limits = TimeLimits(7.0)
    limits.learn("train", 1000.0)
    assert 14.0 == limits.limit(["train", "score"])
