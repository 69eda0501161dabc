"""The time left follows from the costs of jobs, not from their number, and decreases with the clock.

Progress counts events by their own times, so a reader of the log counts the same as the run.
"""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.run_folder import advances
from orchestrator.run_folder.progress import RunProgress, TimeLeft
from orchestrator.store import Store

PLANNED = {"event": "planned", "run": "a-1", "planned": 10, "stored": 2, "tasks": {"net.train": 8, "a.summary": 2}}


def test_jobs_count_by_the_cost_of_their_kind() -> None:
    time_left = TimeLeft({"train": (10, 60.0), "measure": (100, 0.1)})
    time_left.ready(0.0, 2)
    assert time_left.seconds(0.0) == 305.0
    for job in range(1, 6):  # half of the trainings, two at a time: 5 of 110 jobs, and half of the time
        time_left.done("train", 60.0, 30.0 * job)
    assert pytest.approx(time_left.seconds(150.0), rel=0.15) == 155.0


def test_estimate_of_a_regular_run_is_stable() -> None:
    """Trainings of 60 s, two at a time, then many short jobs: as it runs, time left and time passed add up."""
    time_left = TimeLeft({"train": (10, 60.0), "measure": (100, 0.5)})
    time_left.ready(0.0, 2)
    sums = []
    now = 0.0
    for job in range(10):
        now = 60.0 * (job // 2 + 1)
        time_left.done("train", 60.0, now)
        sums.append(now + (time_left.seconds(now) or 0.0))
    for _ in range(100):
        now += 0.25
        time_left.done("measure", 0.5, now)
        sums.append(now + (time_left.seconds(now) or 0.0))
    assert min(sums) / 325 > 0.9
    assert max(sums) / 325 < 1.2


def test_estimate_decreases_between_jobs_and_stays_positive() -> None:
    time_left = TimeLeft({"train": (4, 10.0)})
    time_left.ready(0.0, 1)
    assert time_left.seconds(0.0) == 40.0
    assert time_left.seconds(5.0) == 35.0
    assert time_left.seconds(60.0) == 0.0


def test_times_of_this_run_outweigh_earlier_ones() -> None:
    time_left = TimeLeft({"train": (6, 10.0)})
    time_left.ready(0.0, 1)
    time_left.done("train", 9.0, 9.0)  # which loaded libraries
    assert time_left.seconds(9.0) == 50.0
    time_left.done("train", 2.0, 11.0)
    time_left.done("train", 2.0, 13.0)
    assert time_left.seconds(13.0) == 6.0


def test_untimed_kinds_make_the_estimate_a_lower_bound() -> None:
    time_left = TimeLeft({"train": (2, None), "measure": (5, None)})
    time_left.ready(0.0, 1)
    assert (time_left.seconds(0.0), time_left.is_complete) == (None, False)
    time_left.done("train", 4.0, 4.0)
    assert (time_left.seconds(4.0), time_left.is_complete) == (4.0, False)
    time_left.done("measure", 1.0, 5.0)
    assert time_left.is_complete
    time_left.drop("train")
    for _ in range(4):
        time_left.drop("measure")
    assert (time_left.seconds(5.0), time_left.is_complete) == (0.0, True)


def test_unmeasured_kinds_use_scaled_prices() -> None:
    time_left = TimeLeft({"train": (4, None), "tune": (2, None), "measure": (1, None)}, {"train": 10.0, "tune": 30.0})
    time_left.ready(0.0, 1)
    assert (time_left.seconds(0.0), time_left.is_complete) == (100.0, False)  # the measure has no known cost
    time_left.drop("measure")
    assert time_left.is_complete
    time_left.done("train", 20.0, 20.0)  # twice the price
    assert time_left.seconds(20.0) == 3 * 20.0 + 2 * 60.0


def test_lost_result_adds_work() -> None:
    time_left = TimeLeft({"train": (1, 10.0)})
    time_left.ready(0.0, 1)
    time_left.done("train", 10.0, 10.0)
    assert time_left.seconds(10.0) == 0.0
    time_left.add("train")
    assert time_left.seconds(10.0) == 10.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


FAILED = {"event": "failed", "key": "f" * 64, "task": "net.train", "error": "ValueError: no"}


def done(task: str = "net.train", seconds: float = 4.0) -> dict[str, Any]:
    models = {"models": 1} if task == "net.train" else {}
    return {"event": "done", "key": "k" * 64, "task": task, **models, "seconds": seconds, "worker": "here:1"}


def test_done_failed_and_stored_jobs_are_counted() -> None:
    tally = RunProgress(Clock())
    for event in (PLANNED, done(), done(), FAILED):
        tally.take(event)
    assert tally.planned == 10
    assert tally.stored == 2
    assert tally.done == 2
    assert tally.failed == 1
    assert tally.stored_now == 4


def test_missing_result_counts_again_once_recomputed() -> None:
    tally = RunProgress(Clock())
    gone = {"event": "missing", "key": "f" * 64, "task": "a.summary", "inputs": ["k" * 64]}
    for event in (PLANNED, done(), gone, gone):  # two readers find the same
        tally.take(event)
    assert tally.stored_now == 2
    tally.take(done())
    assert tally.stored_now == 3
    tally.take({"event": "damaged", "key": "k" * 64, "task": "net.train", "problem": "a flipped bit"})
    assert tally.stored_now == 2


def test_models_per_minute_counts_trained_models() -> None:
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


def test_time_left_follows_job_times_and_concurrency() -> None:
    clock = Clock()
    tally = RunProgress(clock)
    tally.take({"event": "planned", "run": "a-1", "planned": 10, "stored": 0, "tasks": {"net.train": 10}})
    assert tally.seconds_left is None
    clock.now += 10.0
    for _ in range(4):
        tally.take(done(seconds=5.0))  # 20 s of work in 10 s: two at a time
    assert tally.seconds_left == 15.0  # 6 jobs of 5 s, two at a time


def test_phase_follows_steps_trainings_and_measures() -> None:
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
    assert phases[6:] == ["measures", "measures", *["checking stored results"] * 2, "writing the report"]


def test_running_trainings_count_by_their_epochs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advances, "SECONDS", 0.0)
    tally = RunProgress(Clock())
    folder = advances.folder_of(store, "a-1")
    kinds = {"net.train/1": (2, None), "net.train/2": (2, 1.0)}
    tally.take(PLANNED | {"trainings": 4, "kinds": kinds, "advances": str(folder)})
    tally.take({"event": "ready", "slots": 1})
    assert tally.phase == "training 0/4"
    assert tally.seconds_left == 2.0
    writer = advances.AdvanceWriter(store, "a-1", "net.train/1", "k" * 64)
    monkeypatch.setattr(writer, "_begin_time", writer._begin_time - 30.0)
    writer.write(0.2)
    writer.stored += 1
    writer.write(0.5)
    assert tally.phase == "training 0/4 (38%)"
    assert tally.seconds_left == pytest.approx(2.0 + 0.5 * 20.0, rel=0.1)  # 1.5 networks took 30 s
    writer.close()
    assert tally.phase == "training 0/4"
    advances.clear(folder)
    assert tally.networks_in_progress == 0.0


def test_event_times_count_not_reading_times() -> None:
    tally = RunProgress(Clock())
    tally.take(PLANNED | {"time": "2026-11-21T10:00:00.000+00:00"})
    for _ in range(3):
        tally.take(done())
    tally.take({"event": "finished", "run": "a-1", "time": "2026-11-21T10:01:30.000+00:00"})
    assert (tally.elapsed, tally.has_ended) == (90.0, True)
    assert tally.models_per_minute == 2.0


def test_another_start_counts_from_zero() -> None:
    tally = RunProgress(Clock())
    for event in (PLANNED, done(), FAILED, {"event": "interrupted"}, PLANNED | {"event": "started", "stored": 3}):
        tally.take(event)
    assert (tally.stored, tally.done, tally.failed, tally.has_ended) == (3, 0, 0, False)


def test_stored_results_are_the_larger_count() -> None:
    tally = RunProgress(Clock())
    started = {"event": "started", "time": "2026-01-01T00:00:00+00:00", "planned": 10, "stored": 2}
    counts = []
    together = {"event": "stored", "results": {"train": ["c", "d"], "test": ["e"]}}
    for event in (started, *({"event": "stored", "key": key} for key in "abc"), together, started):
        tally.take(event)
        counts.append(tally.stored)
    assert counts == [2, 2, 2, 3, 5, 2]
