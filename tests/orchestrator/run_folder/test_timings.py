"""What jobs took tells what others of their kind will take."""

from __future__ import annotations

from pathlib import Path

import pytest
import toys

from orchestrator.planning.plan import Plan, group_of
from orchestrator.run_folder import timings
from orchestrator.runs.lifecycle import start
from orchestrator.spec.execution import Execution
from orchestrator.spec.resolve import Cell
from orchestrator.store import open_store
from tasks.job import Job
from tests.orchestrator.scheduling.test_schedule import Number, score, train


def a_plan(parts: int) -> tuple[Plan, str, str]:
    """A plan of parts below one sum, and the groups of the two kinds of job."""
    plan = Plan.below(toys.plan(toys.Config(parts=parts)))
    part, total = (group_of(plan.jobs[key]) for key in (plan.roots["parts"][0], plan.roots["summary"][0]))
    return plan, part, total


def test_the_work_is_shared_by_the_slots_and_the_start_comes_on_top() -> None:
    plan, part, total = a_plan(8)
    seconds = {part: 3.0, total: 1.0, timings.around("local"): 5.0}
    assert 5.0 + (8 * 3.0 + 1.0) / 2 == timings.expected(plan, list(plan.jobs), seconds, 2)
    assert 8 * 3.0 + 1.0 == timings.expected(plan, list(plan.jobs), seconds, 1, "none")


def test_jobs_that_ask_for_a_gpu_share_the_gpus_and_not_the_slots() -> None:
    plan = Plan.below({"trained": tuple(Job(train, Number(i)) for i in range(6)), "sums": Job(score, Number(0))})
    seconds = {"schedule.train": 3.0, "schedule.score": 4.0}
    assert 6 * 3.0 / 2 == timings.expected(plan, list(plan.jobs), seconds, 16, gpus=2)
    assert (6 * 3.0 + 4.0) / 2 == timings.expected(plan, list(plan.jobs), seconds, 2)


def test_jobs_that_wait_for_one_another_take_their_sum_however_many_slots_there_are() -> None:
    plan, part, total = a_plan(8)
    assert 4.0 == timings.expected(plan, list(plan.jobs), {part: 3.0, total: 1.0}, 100)


def test_what_is_stored_takes_no_time_and_what_was_never_timed_is_not_guessed() -> None:
    plan, _part, total = a_plan(8)
    assert 0.0 == timings.expected(plan, [], {}, 2)
    assert timings.expected(plan, list(plan.jobs), {total: 1.0}, 2) is None


def test_a_runs_timings_are_known_to_the_next(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    start(
        [Cell("toys", toys.Config(parts=5, seconds=0.1))], store, Execution(address="none", mlflow="off", report=False)
    )
    _plan, part, _ = a_plan(10)
    assert timings.known(store.folder("runs"))[part] == pytest.approx(0.1, abs=0.09)
