"""The time left follows from what jobs cost, not from how many they are, and runs down with the clock."""

from __future__ import annotations

import pytest

from orchestrator.run_folder.progress import TimeLeft


def test_jobs_count_with_what_one_of_their_kind_takes() -> None:
    left = TimeLeft({"train": (10, 60.0), "measure": (100, 0.1)})
    left.ready(0.0, 2)
    assert 305.0 == left.seconds(0.0)
    for job in range(1, 6):  # half of the trainings, two at a time: 5 of 110 jobs, and half of the time
        left.done("train", 60.0, 30.0 * job)
    assert 155.0 == pytest.approx(left.seconds(150.0), rel=0.15)


def test_a_run_that_goes_as_expected_never_jumps() -> None:
    """Trainings of 60 s, two at a time, then many short jobs: as it runs, time left and time passed add up."""
    left = TimeLeft({"train": (10, 60.0), "measure": (100, 0.5)})
    left.ready(0.0, 2)
    sums, now = [], 0.0
    for at in range(10):
        now = 60.0 * (at // 2 + 1)
        left.done("train", 60.0, now)
        sums.append(now + (left.seconds(now) or 0.0))
    for _ in range(100):
        now += 0.25
        left.done("measure", 0.5, now)
        sums.append(now + (left.seconds(now) or 0.0))
    assert 0.9 < min(sums) / 325
    assert max(sums) / 325 < 1.2


def test_it_runs_down_between_two_ends_of_jobs_and_never_below_zero() -> None:
    left = TimeLeft({"train": (4, 10.0)})
    left.ready(0.0, 1)
    assert [40.0, 35.0, 0.0] == [left.seconds(now) for now in (0.0, 5.0, 60.0)]


def test_what_this_run_took_counts_more_than_what_earlier_runs_took() -> None:
    left = TimeLeft({"train": (6, 10.0)})
    left.ready(0.0, 1)
    left.done("train", 9.0, 9.0)  # which loaded libraries
    assert 50.0 == left.seconds(9.0)
    left.done("train", 2.0, 11.0)
    left.done("train", 2.0, 13.0)
    assert 6.0 == left.seconds(13.0)


def test_kinds_that_nobody_has_timed_make_it_the_least_that_is_left() -> None:
    left = TimeLeft({"train": (2, None), "measure": (5, None)})
    left.ready(0.0, 1)
    assert (None, False) == (left.seconds(0.0), left.whole)
    left.done("train", 4.0, 4.0)
    assert (4.0, False) == (left.seconds(4.0), left.whole)
    left.done("measure", 1.0, 5.0)
    assert left.whole
    left.drop("train")
    for _ in range(4):
        left.drop("measure")
    assert (0.0, True) == (left.seconds(5.0), left.whole)


def test_kinds_that_never_ran_here_count_with_their_price_scaled_by_what_others_took_of_theirs() -> None:
    left = TimeLeft({"train": (4, None), "tune": (2, None), "measure": (1, None)}, {"train": 10.0, "tune": 30.0})
    left.ready(0.0, 1)
    assert (100.0, False) == (left.seconds(0.0), left.whole)  # nothing is known of the measure
    left.drop("measure")
    assert left.whole
    left.done("train", 20.0, 20.0)  # twice the price
    assert 3 * 20.0 + 2 * 60.0 == left.seconds(20.0)


def test_a_result_that_is_lost_is_work_again() -> None:
    left = TimeLeft({"train": (1, 10.0)})
    left.ready(0.0, 1)
    left.done("train", 10.0, 10.0)
    assert 0.0 == left.seconds(10.0)
    left.again("train")
    assert 10.0 == left.seconds(10.0)
