"""The schedule decides what to send and what each outcome means; every rule of retrying is here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from orchestrator.calls import Call, Done, Failed, Finished, Lost, Missing, Outcome, Refused
from orchestrator.plan import Plan
from orchestrator.schedule import DEATHS, FRUITLESS, Schedule
from tasks.job import Inputs, Job, task


@dataclass(frozen=True)
class Number:
    value: int = 0


@task(version=1, name="schedule.leaf", alike=lambda config: config.value % 2)
def leaf(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({})


@task(version=1, name="schedule.total", gathers=True)
def total(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({})


def a_plan(leaves: int, step: int = 2) -> Plan:
    """Leaves (all alike where the step is 2) below one total."""
    return Plan.below({"summary": Job(total, Number(), tuple(Job(leaf, Number(step * i)) for i in range(leaves)))})


def done(key: str) -> Outcome:
    return Done(key, 1.0, "here:1")


def answer(schedule: Schedule, call: Call, outcome: Callable[[str], Outcome] = done) -> None:
    schedule.record(Finished(call, tuple(outcome(item.key) for item in call.items)))


def keys(call: Call | None) -> list[str]:
    assert call is not None
    return [item.key for item in call.items]


def drain(schedule: Schedule, outcome: Callable[[str], Outcome] = done) -> list[list[str]]:
    """Send one call at a time to the end; the keys of each."""
    sent = []
    while call := schedule.next():
        sent.append(keys(call))
        answer(schedule, call, outcome)
    return sent


def test_inputs_come_before_their_readers_and_all_is_sent_once() -> None:
    plan = a_plan(3)
    schedule = Schedule(plan, set())
    assert list(plan.jobs) == [key for call in drain(schedule) for key in call]
    assert schedule.over
    assert set(plan.jobs) == schedule.done


def test_stored_jobs_are_not_sent() -> None:
    plan = a_plan(3)
    stored = set(list(plan.jobs)[:2])
    assert list(plan.jobs)[2:] == [key for call in drain(Schedule(plan, stored)) for key in call]


def test_only_alike_jobs_share_a_call() -> None:
    plan = a_plan(4, step=1)
    sizes = [len(call) for call in drain(Schedule(plan, set(), together=8))]
    assert [2, 2, 1] == sizes


def test_short_jobs_share_calls_once_their_seconds_are_known() -> None:
    plan = a_plan(400)
    schedule = Schedule(plan, set(), slots=2)
    calls = drain(schedule, lambda key: Done(key, 0.001, "here:1"))
    assert 1 == len(calls[0])
    assert 64 == max(map(len, calls))
    assert 401 == sum(map(len, calls))


def test_long_jobs_do_not_share_calls() -> None:
    assert {1} == {len(call) for call in drain(Schedule(a_plan(40), set(), slots=2))}


def test_a_failed_job_is_final_and_the_rest_goes_on() -> None:
    plan = a_plan(3)
    bad = next(iter(plan.jobs))
    schedule = Schedule(plan, set())
    drain(schedule, lambda key: Failed(key, "ValueError: no", "...") if key == bad else done(key))
    assert {bad} == set(schedule.failed)
    assert 2 == len(schedule.done)
    assert schedule.over


def test_with_fail_fast_nothing_is_sent_after_a_failure() -> None:
    plan = a_plan(3)
    schedule = Schedule(plan, set(), fail_fast=True)
    assert 1 == len(drain(schedule, lambda key: Failed(key, "ValueError: no", "...")))
    assert schedule.over


def test_a_lost_worker_does_not_lose_its_jobs() -> None:
    plan = a_plan(1)
    schedule = Schedule(plan, set())
    call = schedule.next()
    assert call is not None
    answer(schedule, call, lambda key: Lost(key, "worker died", died=True))
    again = schedule.next()
    assert again is not None
    assert keys(call) == keys(again)
    assert again.delay > 0


def test_a_group_is_halved_until_the_culprit_is_alone_and_only_it_is_set_aside() -> None:
    plan = a_plan(8)
    culprit = list(plan.jobs)[5]
    schedule = Schedule(plan, set(), together=8)
    sizes = []
    while call := schedule.next():
        sizes.append(len(call.items))
        poisoned = culprit in keys(call)
        answer(schedule, call, (lambda key: Lost(key, "worker died", died=True)) if poisoned else done)
    assert [8, 4, 4, 2, 2, 1, 1] == sizes[:7]
    assert {culprit} == set(schedule.failed)
    assert f"its worker died {DEATHS} times; the last time: worker died" == schedule.failed[culprit].error
    assert 7 == len(schedule.done)


def test_a_lost_node_is_never_held_against_a_job() -> None:
    plan = a_plan(2)
    schedule = Schedule(plan, set())
    unlucky, lucky = (schedule.next() for _ in range(2))
    assert unlucky is not None
    assert lucky is not None
    for _ in range(3 * DEATHS):
        answer(schedule, unlucky, lambda key: Lost(key, "node went away"))
        answer(schedule, lucky)
        unlucky = schedule.next()
        assert unlucky is not None
    assert not schedule.failed


def test_a_run_pauses_where_nothing_at_all_succeeds() -> None:
    schedule = Schedule(a_plan(1), set())
    delays = []
    while call := schedule.next():
        delays.append(call.delay)
        answer(schedule, call, lambda key: Lost(key, "the network is down"))
    assert FRUITLESS == len(delays)
    assert sorted(delays) == delays
    assert "nothing can be run: the network is down" == schedule.paused


def test_a_store_that_refuses_is_a_pause_and_loses_nothing() -> None:
    plan = a_plan(4)
    schedule = Schedule(plan, set())
    first, second = schedule.next(), schedule.next()
    assert first is not None
    assert second is not None
    answer(schedule, first, lambda key: Refused(key, "No space left on device"))
    assert schedule.next() is None
    answer(schedule, second)
    assert schedule.over
    assert "No space left on device" == schedule.paused
    assert set(keys(second)) == schedule.done
    assert not schedule.failed


def test_a_missing_input_opens_its_producer_again_and_its_reader_waits() -> None:
    plan = a_plan(3)
    gone, summary = next(iter(plan.jobs)), plan.roots["summary"][0]
    schedule = Schedule(plan, set(plan.jobs) - {summary})
    call = schedule.next()
    assert call is not None
    answer(schedule, call, lambda key: Missing(key, (gone,)))
    assert [[gone], [summary]] == drain(schedule)
    assert schedule.over


def test_other_readers_of_a_missing_input_wait_too() -> None:
    base = Job(leaf, Number(0))
    readers = tuple(Job(total, Number(i), (base,)) for i in range(3))
    plan = Plan.below({"summary": readers})
    gone = next(iter(plan.jobs))
    schedule = Schedule(plan, {gone})
    call = schedule.next()
    assert call is not None
    answer(schedule, call, lambda key: Missing(key, (gone,)))
    assert [gone] == drain(schedule)[0]
    assert set(plan.jobs) == schedule.done


def test_an_input_that_is_damaged_again_and_again_sets_its_reader_aside() -> None:
    plan = a_plan(1)
    leaf_key, summary = plan.jobs
    schedule = Schedule(plan, {leaf_key})
    drain(schedule, lambda key: Missing(key, (leaf_key,)) if key == summary else done(key))
    assert {summary} == set(schedule.failed)
    assert schedule.over


def test_jobs_left_to_another_run_are_taken_when_they_arrive_or_reclaimed_when_it_dies() -> None:
    plan = a_plan(3)
    first, second, third, summary = plan.jobs
    schedule = Schedule(plan, set())
    schedule.defer([first, second, summary])
    assert [[third]] == drain(schedule)
    assert not schedule.over
    schedule.arrived([first])
    assert schedule.next() is None
    schedule.reclaim([second, summary])
    assert [[second], [summary]] == drain(schedule)
    assert schedule.over


def test_what_failed_earlier_in_the_run_is_not_sent_again() -> None:
    plan = a_plan(2)
    bad = next(iter(plan.jobs))
    schedule = Schedule(plan, set(), failed={bad: Failed(bad, "ValueError: no", "")})
    sent = drain(schedule)
    assert bad not in [key for call in sent for key in call]
    assert 1 == len(sent)


def test_the_window_is_the_callers_and_the_schedule_scales() -> None:
    plan = a_plan(20_000)
    schedule = Schedule(plan, set(), slots=2, together=64)
    assert 20_001 == sum(map(len, drain(schedule)))
