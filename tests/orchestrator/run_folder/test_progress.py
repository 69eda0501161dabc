"""A tally counts a run's events by their own times, so whoever reads the log counts what the run counted."""

from __future__ import annotations

from typing import Any

from orchestrator.run_folder.progress import RunProgress

PLANNED = {"event": "planned", "run": "a-1", "planned": 10, "stored": 2, "tasks": {"net.train": 8, "a.summary": 2}}


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
    assert (10, 2, 2, 1) == (tally.planned, tally.stored, tally.done, tally.failed)
    assert 4 == tally.there


def test_a_result_that_is_gone_counts_again_once_it_is_computed_again() -> None:
    tally = RunProgress(Clock())
    gone = {"event": "missing", "key": "f" * 64, "task": "a.summary", "inputs": ["k" * 64]}
    for event in (PLANNED, done(), gone, gone):  # two readers find the same
        tally.take(event)
    assert 2 == tally.there
    tally.take(done())
    assert 3 == tally.there
    tally.take({"event": "damaged", "key": "k" * 64, "task": "net.train", "problem": "a flipped bit"})
    assert 2 == tally.there


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
    assert 6.0 == tally.models_per_minute


def test_the_time_left_follows_from_what_jobs_took_and_how_many_ran_at_a_time() -> None:
    clock = Clock()
    tally = RunProgress(clock)
    tally.take({"event": "planned", "run": "a-1", "planned": 10, "stored": 0, "tasks": {"net.train": 10}})
    assert tally.left is None
    clock.now += 10.0
    for _ in range(4):
        tally.take(done(seconds=5.0))  # 20 s of work in 10 s: two at a time
    assert 15.0 == tally.left  # 6 jobs of 5 s, two at a time


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
        {"event": "step", "step": "checking what is stored"},
        {"event": "finished", "run": "a-1"},
        {"event": "step", "step": "writing the report"},
    ):
        tally.take(event)
        phases.append(tally.phase)
    assert ["reading data", "planning", "planning", "starting Ray", "training 2/4", "training 3/4"] == phases[:6]
    assert ["measures", "measures", *["checking what is stored"] * 2, "writing the report"] == phases[6:]


def test_the_times_of_the_events_count_and_not_when_they_are_read() -> None:
    tally = RunProgress(Clock())
    tally.take(PLANNED | {"time": "2026-11-21T10:00:00.000+00:00"})
    for _ in range(3):
        tally.take(done())
    tally.take({"event": "finished", "run": "a-1", "time": "2026-11-21T10:01:30.000+00:00"})
    assert (90.0, True) == (tally.elapsed, tally.over)
    assert 2.0 == tally.models_per_minute


def test_another_start_counts_from_nothing() -> None:
    tally = RunProgress(Clock())
    for event in (PLANNED, done(), FAILED, {"event": "interrupted"}, PLANNED | {"event": "started", "stored": 3}):
        tally.take(event)
    assert (3, 0, 0, False) == (tally.stored, tally.done, tally.failed, tally.over)


def test_results_that_were_stored_are_counted_by_the_start_or_by_their_events_whichever_are_more() -> None:
    tally = RunProgress(Clock())
    started = {"event": "started", "time": "2026-01-01T00:00:00+00:00", "planned": 10, "stored": 2}
    counts = []
    for event in (started, *({"event": "stored", "key": key} for key in "abc"), started):
        tally.take(event)
        counts.append(tally.stored)
    assert [2, 2, 2, 3, 2] == counts
