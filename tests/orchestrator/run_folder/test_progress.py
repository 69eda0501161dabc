"""The time left follows from what jobs cost, not from how many they are, and runs down with the clock.

A tally counts a run's events by their own times, so whoever reads the log counts what the run counted.
"""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.run_folder.progress import RunProgress, TimeLeft

PLANNED = {"event": "planned", "run": "a-1", "planned": 10, "stored": 2, "tasks": {"net.train": 8, "a.summary": 2}}


def test_jobs_count_with_what_one_of_their_kind_takes() -> None:
    left = TimeLeft({"train": (10, 60.0), "measure": (100, 0.1)})
    left.ready(0.0, 2)
    assert left.seconds(0.0) == 305.0
    for job in range(1, 6):  # half of the trainings, two at a time: 5 of 110 jobs, and half of the time
        left.done("train", 60.0, 30.0 * job)
    assert pytest.approx(left.seconds(150.0), rel=0.15) == 155.0


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
    assert min(sums) / 325 > 0.9
    assert max(sums) / 325 < 1.2


def test_it_runs_down_between_two_ends_of_jobs_and_never_below_zero() -> None:
    left = TimeLeft({"train": (4, 10.0)})
    left.ready(0.0, 1)
    assert [left.seconds(now) for now in (0.0, 5.0, 60.0)] == [40.0, 35.0, 0.0]


def test_what_this_run_took_counts_more_than_what_earlier_runs_took() -> None:
    left = TimeLeft({"train": (6, 10.0)})
    left.ready(0.0, 1)
    left.done("train", 9.0, 9.0)  # which loaded libraries
    assert left.seconds(9.0) == 50.0
    left.done("train", 2.0, 11.0)
    left.done("train", 2.0, 13.0)
    assert left.seconds(13.0) == 6.0


def test_kinds_that_nobody_has_timed_make_it_the_least_that_is_left() -> None:
    left = TimeLeft({"train": (2, None), "measure": (5, None)})
    left.ready(0.0, 1)
    assert (left.seconds(0.0), left.is_complete) == (None, False)
    left.done("train", 4.0, 4.0)
    assert (left.seconds(4.0), left.is_complete) == (4.0, False)
    left.done("measure", 1.0, 5.0)
    assert left.is_complete
    left.drop("train")
    for _ in range(4):
        left.drop("measure")
    assert (left.seconds(5.0), left.is_complete) == (0.0, True)


def test_kinds_that_never_ran_here_count_with_their_price_scaled_by_what_others_took_of_theirs() -> None:
    left = TimeLeft({"train": (4, None), "tune": (2, None), "measure": (1, None)}, {"train": 10.0, "tune": 30.0})
    left.ready(0.0, 1)
    assert (left.seconds(0.0), left.is_complete) == (100.0, False)  # nothing is known of the measure
    left.drop("measure")
    assert left.is_complete
    left.done("train", 20.0, 20.0)  # twice the price
    assert left.seconds(20.0) == 3 * 20.0 + 2 * 60.0


def test_a_result_that_is_lost_is_work_again() -> None:
    left = TimeLeft({"train": (1, 10.0)})
    left.ready(0.0, 1)
    left.done("train", 10.0, 10.0)
    assert left.seconds(10.0) == 0.0
    left.add("train")
    assert left.seconds(10.0) == 10.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


FAILED = {"event": "failed", "key": "f" * 64, "task": "net.train", "error": "ValueError: no"}


def done(task: str = "net.train", seconds: float = 4.0) -> dict[str, Any]:
    models = {"models": 1} if task == "net.train" else {}
    return {"event": "done", "key": "k" * 64, "task": task, **models, "seconds": seconds, "worker": "here:1"}


def test_jobs_done_and_failed_are_counted_beside_what_was_stored() -> None:
    tally = RunProgress(Clock())
    for event in (PLANNED, done(), done(), FAILED):
        tally.take(event)
    assert (tally.planned, tally.stored, tally.done, tally.failed) == (10, 2, 2, 1)
    assert tally.stored_now == 4


def test_a_result_that_is_gone_counts_again_once_it_is_computed_again() -> None:
    tally = RunProgress(Clock())
    gone = {"event": "missing", "key": "f" * 64, "task": "a.summary", "inputs": ["k" * 64]}
    for event in (PLANNED, done(), gone, gone):  # two readers find the same
        tally.take(event)
    assert tally.stored_now == 2
    tally.take(done())
    assert tally.stored_now == 3
    tally.take({"event": "damaged", "key": "k" * 64, "task": "net.train", "problem": "a flipped bit"})
    assert tally.stored_now == 2


def test_models_per_minute_counts_what_jobs_say_they_trained_whatever_they_are_called() -> None:
    clock = Clock()
    tally = RunProgress(clock)
    tally.take(PLANNED)
    for event in (done("a.train_set"), done("a.summary", 0.1)):
        tally.take(event)
    assert tally.models_per_minute is None
    for event in (done(), done("a.course") | {"models": 2}):
        tally.take(event)
    clock.now += 30.0
    assert tally.models_per_minute == 6.0


def test_the_time_left_follows_from_what_jobs_took_and_how_many_ran_at_a_time() -> None:
    clock = Clock()
    tally = RunProgress(clock)
    tally.take({"event": "planned", "run": "a-1", "planned": 10, "stored": 0, "tasks": {"net.train": 10}})
    assert tally.seconds_left is None
    clock.now += 10.0
    for _ in range(4):
        tally.take(done(seconds=5.0))  # 20 s of work in 10 s: two at a time
    assert tally.seconds_left == 15.0  # 6 jobs of 5 s, two at a time


def test_the_phase_is_the_step_before_the_jobs_then_the_trainings_then_the_measures() -> None:
    tally = RunProgress(Clock())
    phases = []
    trainings = {"trainings": 4, "trained": 2}
    for event in (
        {"event": "step", "step": "reading data"},
        {"event": "step", "step": "planning"},
        PLANNED | trainings,
        {"event": "step", "step": "starting Ray"},
        {"event": "ready", "slots": 2},
        done(),
        done(),
        done("a.summary"),
        {"event": "step", "step": "checking stored results"},
        {"event": "finished", "run": "a-1"},
        {"event": "step", "step": "writing the report"},
    ):
        tally.take(event)
        phases.append(tally.phase)
    assert phases[:6] == ["reading data", "planning", "planning", "starting Ray", "training 2/4", "training 3/4"]
    assert ["measures", "measures", *["checking stored results"] * 2, "writing the report"] == phases[6:]


def test_the_times_of_the_events_count_and_not_when_they_are_read() -> None:
    tally = RunProgress(Clock())
    tally.take(PLANNED | {"time": "2026-11-21T10:00:00.000+00:00"})
    for _ in range(3):
        tally.take(done())
    tally.take({"event": "finished", "run": "a-1", "time": "2026-11-21T10:01:30.000+00:00"})
    assert (tally.elapsed, tally.has_ended) == (90.0, True)
    assert tally.models_per_minute == 2.0


def test_another_start_counts_from_nothing() -> None:
    tally = RunProgress(Clock())
    for event in (PLANNED, done(), FAILED, {"event": "interrupted"}, PLANNED | {"event": "started", "stored": 3}):
        tally.take(event)
    assert (tally.stored, tally.done, tally.failed, tally.has_ended) == (3, 0, 0, False)


def test_results_that_were_stored_are_counted_by_the_start_or_by_their_events_whichever_are_more() -> None:
    tally = RunProgress(Clock())
    started = {"event": "started", "time": "2026-01-01T00:00:00+00:00", "planned": 10, "stored": 2}
    counts = []
    together = {"event": "stored", "results": {"train": ["c", "d"], "test": ["e"]}}
    for event in (started, *({"event": "stored", "key": key} for key in "abc"), together, started):
        tally.take(event)
        counts.append(tally.stored)
    assert counts == [2, 2, 2, 3, 5, 2]
