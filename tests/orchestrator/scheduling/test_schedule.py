"""The schedule decides what to send and how to treat each outcome. All rules of retrying are tested here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

from orchestrator.executors.calls import Call, Done, Failed, Finished, Lost, Missing, Outcome, Refused
from orchestrator.executors.gpu_packing import FIRST_GROWING, GpuMeasurement, gpu_fraction
from orchestrator.planning.plan import Plan
from orchestrator.scheduling.schedule import MAX_DEATHS, MAX_LOSSES, MAX_REOPENED, Schedule
from tasks.contract.job import Inputs, Job, task
from tasks.contract.quantities import ByteCount
from tasks.contract.resources import Resources


@dataclass(frozen=True)
class Number:
    value: int = 0


@task(version=1, name="schedule.leaf", batch_key=lambda config: config.value % 2)
def leaf(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({})


@task(version=1, name="schedule.total", gathers=True)
def total(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({})


def leaves_below_total(leaves: int, step: int = 2) -> Plan:
    """Leaves (all of one group if the step is 2) below one total."""
    return Plan.from_roots({"summary": Job(total, Number(), tuple(Job(leaf, Number(step * i)) for i in range(leaves)))})


def done(key: str) -> Outcome:
    return Done(key, 1.0, "here:1")


def answer(schedule: Schedule, call: Call, outcome: Callable[[str], Outcome] = done) -> None:
    schedule.record(Finished(call, tuple(outcome(item.key) for item in call.items)))


def keys(call: Call | None) -> list[str]:
    assert call is not None
    return [item.key for item in call.items]


def drain(schedule: Schedule, outcome: Callable[[str], Outcome] = done) -> list[list[str]]:
    """Send one call at a time until none is left. Returns the keys of each call."""
    call_keys = []
    while call := schedule.next():
        call_keys.append(keys(call))
        answer(schedule, call, outcome)
    return call_keys


def test_inputs_precede_readers_and_all_is_sent_once() -> None:
    plan = leaves_below_total(3)
    schedule = Schedule(plan, set())
    assert list(plan.jobs) == [key for call in drain(schedule) for key in call]
    assert schedule.is_over
    assert set(plan.jobs) == schedule.done


def test_stored_jobs_are_not_sent() -> None:
    plan = leaves_below_total(3)
    stored_keys = set(list(plan.jobs)[:2])
    assert list(plan.jobs)[2:] == [key for call in drain(Schedule(plan, stored_keys)) for key in call]


def test_only_jobs_of_one_group_share_calls() -> None:
    plan = leaves_below_total(4, step=1)
    sizes = [len(call) for call in drain(Schedule(plan, set(), together=8))]
    assert sizes == [2, 2, 1]


def test_short_jobs_share_calls_once_timed() -> None:
    plan = leaves_below_total(400)
    schedule = Schedule(plan, set(), slots=2)
    calls = drain(schedule, lambda key: Done(key, 0.001, "here:1"))
    assert len(calls[0]) == 1
    assert max(map(len, calls)) == 64
    assert sum(map(len, calls)) == 401


def test_long_jobs_do_not_share_calls() -> None:
    assert {len(call) for call in drain(Schedule(leaves_below_total(40), set(), slots=2))} == {1}


def test_failed_job_is_final_and_others_continue() -> None:
    plan = leaves_below_total(3)
    bad = next(iter(plan.jobs))
    schedule = Schedule(plan, set())
    drain(schedule, lambda key: Failed(key, "ValueError: no", "...") if key == bad else done(key))
    assert set(schedule.failed) == {bad}
    assert len(schedule.done) == 2
    assert schedule.is_over


def test_fail_fast_sends_nothing_after_a_failure() -> None:
    plan = leaves_below_total(3)
    schedule = Schedule(plan, set(), fail_fast=True)
    assert len(drain(schedule, lambda key: Failed(key, "ValueError: no", "..."))) == 1
    assert schedule.is_over


def test_jobs_of_a_lost_worker_are_resent() -> None:
    plan = leaves_below_total(1)
    schedule = Schedule(plan, set())
    call = schedule.next()
    assert call is not None
    answer(schedule, call, lambda key: Lost(key, "worker died", died=True))
    retry = schedule.next()
    assert retry is not None
    assert keys(call) == keys(retry)
    assert retry.delay > 0


def test_lost_group_is_halved_down_to_the_culprit() -> None:
    plan = leaves_below_total(8)
    culprit = list(plan.jobs)[5]
    schedule = Schedule(plan, set(), together=8)
    sizes = []
    while call := schedule.next():
        sizes.append(len(call.items))
        poisoned = culprit in keys(call)
        answer(schedule, call, (lambda key: Lost(key, "worker died", died=True)) if poisoned else done)
    assert sizes[:7] == [8, 4, 4, 2, 2, 1, 1]
    assert set(schedule.failed) == {culprit}
    assert schedule.failed[culprit].error == f"its worker died {MAX_DEATHS} times; the last time: worker died"
    assert len(schedule.done) == 7


def test_lost_node_never_counts_against_a_job() -> None:
    plan = leaves_below_total(2)
    schedule = Schedule(plan, set())
    unlucky, lucky = (schedule.next() for _ in range(2))
    assert unlucky is not None
    assert lucky is not None
    for _ in range(3 * MAX_DEATHS):
        answer(schedule, unlucky, lambda key: Lost(key, "node went away"))
        answer(schedule, lucky)
        unlucky = schedule.next()
        assert unlucky is not None
    assert not schedule.failed


def test_run_without_any_success_pauses() -> None:
    schedule = Schedule(leaves_below_total(1), set())
    delays = []
    while call := schedule.next():
        delays.append(call.delay)
        answer(schedule, call, lambda key: Lost(key, "the network is down"))
    assert len(delays) == MAX_LOSSES
    assert sorted(delays) == delays
    assert schedule.paused == "no job can be run: the network is down"


def test_back_off_doubles_up_to_a_minute() -> None:
    schedule = Schedule(leaves_below_total(1), set())
    delays = []
    while call := schedule.next():
        delays.append(call.delay)
        answer(schedule, call, lambda key: Lost(key, "the network is down"))
    assert delays == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_success_resets_the_count_of_losses() -> None:
    schedule = Schedule(leaves_below_total(2 * MAX_LOSSES), set())
    unlucky = schedule.next()
    for _ in range(2 * MAX_LOSSES - 1):
        assert unlucky is not None
        answer(schedule, unlucky, lambda key: Lost(key, "its node went away"))
        unlucky = schedule.next()
        lucky = schedule.next()
        assert unlucky is not None
        assert lucky is not None
        answer(schedule, lucky)
        assert unlucky.delay == 0.5
    assert schedule.paused is None


def test_learned_job_time_sets_call_size() -> None:
    plan = leaves_below_total(3000)
    schedule = Schedule(plan, set(), slots=2)
    for seconds, fitting in ((0.02, 25), (0.12, 12), (0.02, 14)):  # means of 0.02, 0.04 and 0.036 s in half a second
        call = schedule.next()
        assert call is not None
        answer(schedule, call, lambda key, seconds=seconds: Done(key, seconds, "here:1"))  # type: ignore[misc]
        if len(call.items) == 1:
            assert fitting == len(keys(schedule.next()))


def test_key_arriving_while_waiting_is_settled_once() -> None:
    plan = leaves_below_total(2)
    first, second, summary = plan.jobs
    schedule = Schedule(plan, set())
    call = schedule.next()
    assert call is not None
    assert [first] == keys(call)
    schedule.take_over_results([first, second])
    assert schedule.done == {second}
    assert schedule.next() is None
    answer(schedule, call)
    assert [[summary]] == drain(schedule)


def test_store_that_refuses_pauses_without_losing_results() -> None:
    plan = leaves_below_total(4)
    schedule = Schedule(plan, set())
    first, second = schedule.next(), schedule.next()
    assert first is not None
    assert second is not None
    answer(schedule, first, lambda key: Refused(key, "No space left on device"))
    assert schedule.next() is None
    answer(schedule, second)
    assert schedule.is_over
    assert schedule.paused == "No space left on device"
    assert set(keys(second)) == schedule.done
    assert not schedule.failed


def test_missing_input_is_recomputed_before_its_reader() -> None:
    plan = leaves_below_total(3)
    gone = next(iter(plan.jobs))
    summary = plan.roots["summary"][0]
    schedule = Schedule(plan, set(plan.jobs) - {summary})
    call = schedule.next()
    assert call is not None
    answer(schedule, call, lambda key: Missing(key, (gone,)))
    assert [[gone], [summary]] == drain(schedule)
    assert schedule.is_over


def test_all_readers_of_a_missing_input_wait() -> None:
    base = Job(leaf, Number(0))
    readers = tuple(Job(total, Number(i), (base,)) for i in range(3))
    plan = Plan.from_roots({"summary": readers})
    gone = next(iter(plan.jobs))
    schedule = Schedule(plan, {gone})
    call = schedule.next()
    assert call is not None
    answer(schedule, call, lambda key: Missing(key, (gone,)))
    assert [gone] == drain(schedule)[0]
    assert set(plan.jobs) == schedule.done


def readers(count: int, deep: bool = False) -> Plan:
    """Readers of one shared input, all of one group. If `deep`, the input has an input as well."""
    base = Job(leaf, Number(1), (Job(leaf, Number(3)),) if deep else ())
    return Plan.from_roots({"summary": tuple(Job(leaf, Number(2 * i), (base,)) for i in range(count))})


@pytest.mark.parametrize("together", [1, 5, 12])
def test_damaged_input_is_recomputed_once_for_all_readers(together: int) -> None:
    plan = readers(12)
    base, *reader_keys = plan.jobs
    schedule = Schedule(plan, {base}, together=together)
    calls = send_all(schedule)
    assert reader_keys == [key for call in calls for key in keys(call)]
    for call in calls:
        answer(schedule, call, lambda key: Missing(key, (base,)))
    resent = drain(schedule)
    assert [base] == resent[0]
    assert sorted(reader_keys) == sorted(key for call in resent[1:] for key in call)
    assert ({}, set(plan.jobs), 1, True) == (schedule.failed, schedule.done, schedule.damaged, schedule.is_over)


def test_report_from_before_the_recomputation_is_ignored() -> None:
    plan = readers(2)
    base, first, second = plan.jobs
    schedule = Schedule(plan, {base})
    first_call, second_call = send_all(schedule)
    answer(schedule, first_call, lambda key: Missing(key, (base,)))
    assert [[base], [first]] == drain(schedule)
    answer(schedule, second_call, lambda key: Missing(key, (base,)))
    assert schedule.damaged == 1
    assert drain(schedule) == [[second]]


def test_report_from_before_an_arrival_is_ignored() -> None:
    plan = readers(2)
    base, first, second = plan.jobs
    schedule = Schedule(plan, {base})
    first_call, second_call = send_all(schedule)
    answer(schedule, first_call, lambda key: Missing(key, (base,)))
    schedule.defer([base])
    schedule.take_over_results([base])
    answer(schedule, second_call, lambda key: Missing(key, (base,)))
    assert schedule.damaged == 1
    assert drain(schedule) == [[first], [second]]


def test_groups_of_equal_depth_keep_their_order() -> None:
    plan = Plan.from_roots({"summary": tuple(Job(link, Number(value)) for value in range(20))})
    sent_values = []
    for call in drain(Schedule(plan, set(), together=2)):
        for key in call:
            sent_values.append(plan.jobs[key].config.value)
    assert [value for group in range(10) for value in (group, group + 10)] == sent_values


def test_calls_shrink_towards_the_end() -> None:
    plan = leaves_below_total(100)
    group = next(iter(plan.groups.values()))
    schedule = Schedule(plan, set(), slots=3, seconds={group: 0.01})
    assert sizes(send_all(schedule))[:7] == [16, 14, 11, 9, 8, 7, 5]


def test_repeatedly_damaged_result_fails_without_its_readers() -> None:
    plan = readers(4)
    base = next(iter(plan.jobs))
    schedule = Schedule(plan, {base}, together=2)
    calls = 0
    while all_at_once := send_all(schedule):
        calls += len(all_at_once)
        for call in all_at_once:
            answer(schedule, call, lambda key: done(key) if key == base else Missing(key, (base,)))
    assert [base] == list(schedule.failed)
    assert f"was missing or damaged {MAX_REOPENED} times" in schedule.failed[base].error
    assert schedule.damaged == MAX_REOPENED
    assert calls == 2 * MAX_REOPENED + MAX_REOPENED - 1
    assert (set(), True) == (schedule.done, schedule.is_over)


def test_result_damaged_less_often_does_not_fail() -> None:
    plan = readers(4)
    base = next(iter(plan.jobs))
    schedule = Schedule(plan, {base}, together=4)
    harms = [True] * (MAX_REOPENED - 1)
    while call := schedule.next():
        harmed = keys(call) != [base] and bool(harms) and harms.pop()
        answer(schedule, call, (lambda key: Missing(key, (base,))) if harmed else done)
    assert schedule.failed == {}
    assert schedule.done == set(plan.jobs)
    assert schedule.damaged == MAX_REOPENED - 1


def test_lost_reader_waits_for_its_reopened_input() -> None:
    plan = readers(2)
    base, first, second = plan.jobs
    schedule = Schedule(plan, {base})
    first_call, second_call = send_all(schedule)
    answer(schedule, first_call, lambda key: Missing(key, (base,)))
    answer(schedule, second_call, lambda key: Lost(key, "worker died", died=True))
    call = schedule.next()
    assert keys(call) == [base]
    assert schedule.next() is None
    assert call is not None
    answer(schedule, call)
    assert sorted([first, second]) == sorted(key for call in drain(schedule) for key in call)


def test_halves_of_lost_call_wait_for_input() -> None:
    plan = readers(5)
    base, first, *remaining = plan.jobs
    schedule = Schedule(plan, {base, first}, together=3)
    first_call, second_call = send_all(schedule)
    answer(schedule, first_call, lambda key: Lost(key, "worker died", died=True))
    answer(schedule, second_call, lambda key: Missing(key, (base,)))
    resent = drain(schedule)
    assert [base] == resent[0]
    assert sorted(remaining) == sorted(key for call in resent[1:] for key in call)
    assert schedule.is_over


def test_due_retry_waits_for_its_reopened_input() -> None:
    plan = readers(2, deep=True)
    deepest, base, *_ = plan.jobs
    schedule = Schedule(plan, {deepest, base})
    first_call, second_call = send_all(schedule)
    answer(schedule, first_call, lambda key: Lost(key, "its node went away"))
    answer(schedule, second_call, lambda key: Missing(key, (base,)))
    assert [base] == drain(schedule)[0]
    assert schedule.failed == {}
    assert schedule.done == set(plan.jobs)


def test_result_read_as_input_and_state_is_recomputed() -> None:
    first = Job(link, Number(0))
    last = Job(link, Number(1), (first,), after=first)
    plan = Plan.from_roots({"summary": Job(total, Number(), (last,))})
    before, after, summary = plan.jobs
    schedule = Schedule(plan, {after})
    assert (before,) == plan.dependencies(after)
    call = schedule.next()
    assert [summary] == keys(call)
    assert call is not None
    answer(schedule, call, lambda key: Missing(key, (after,)))
    assert [[before], [after], [summary]] == drain(schedule)
    assert schedule.is_over


def test_deferred_jobs_arrive_or_are_reclaimed() -> None:
    plan = leaves_below_total(3)
    first, second, third, summary = plan.jobs
    schedule = Schedule(plan, set())
    schedule.defer([first, second, summary])
    assert [[third]] == drain(schedule)
    assert not schedule.is_over
    schedule.take_over_results([first])
    assert schedule.next() is None
    schedule.reclaim([second, summary])
    assert [[second], [summary]] == drain(schedule)
    assert schedule.is_over


def test_earlier_failures_are_not_sent_again() -> None:
    plan = leaves_below_total(2)
    bad = next(iter(plan.jobs))
    schedule = Schedule(plan, set(), failed={bad: Failed(bad, "ValueError: no", "")})
    call_keys = drain(schedule)
    assert bad not in [key for call in call_keys for key in call]
    assert len(call_keys) == 1


def test_schedule_handles_20000_jobs() -> None:
    plan = leaves_below_total(20_000)
    schedule = Schedule(plan, set(), slots=2, together=64)
    assert sum(map(len, drain(schedule))) == 20_001


@task(version=1, name="schedule.train", gpus=1.0)
def train(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({})


@task(version=1, name="schedule.train_alike", gpus=1.0, batch_key=lambda config: config.value % 2)
def train_alike(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({})


@task(version=1, name="schedule.score")
def score(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({})


def trainings(count: int, scores: int = 0) -> Plan:
    """Trainings, which ask for a GPU, and scores, which do not, below one total."""
    below = [Job(train, Number(i)) for i in range(count)] + [Job(score, Number(i)) for i in range(scores)]
    return Plan.from_roots({"summary": Job(total, Number(), tuple(below))})


def gpu_outcome(busy: float, stack: int = 10, member: float = 1.0, device: float = 1000.0) -> Callable[[str], Outcome]:
    return lambda key: Done(key, 1.0, "here:1", measured=GpuMeasurement(stack, member, device, busy))


def send_all(schedule: Schedule) -> list[Call]:
    """All calls that can be sent before the first one returns."""
    calls = []
    while call := schedule.next():
        calls.append(call)
    return calls


def sizes(calls: list[Call]) -> list[int]:
    return [len(call.items) for call in calls]


def test_without_gpu_gpu_tasks_are_sent_as_others() -> None:
    calls = send_all(Schedule(trainings(4, scores=2), set(), slots=2))
    assert sizes(calls) == [1] * 6
    assert {(call.gpus, call.sharers) for call in calls} == {(0.0, 1)}


def test_each_gpu_gets_an_equal_call() -> None:
    calls = send_all(Schedule(trainings(100), set(), slots=16, gpus=4))
    assert sizes(calls) == [25, 25, 25, 25]
    assert {(call.gpus, call.sharers) for call in calls} == {(1.0, 1)}


def test_job_with_several_gpus_shares_none() -> None:
    schedule = Schedule(trainings(8, scores=1), set(), slots=16, gpus=5, gpus_per_job=2)
    first, second, scores = send_all(schedule)
    assert (first.gpus, first.sharers) == (2.0, 1)
    assert (second.gpus, second.sharers) == (2.0, 1)
    assert (scores.gpus, scores.sharers) == (0.0, 1)
    assert sizes([first, second, scores]) == [4, 4, 1]
    answer(schedule, first, gpu_outcome(0.2))
    assert schedule.on_gpus == 1


@task(version=1, name="schedule.spread", gpus=1.0, spreads=lambda config: config.value >= 0)
def spread(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({})


@pytest.mark.parametrize(("gpus", "expected"), [(0, (3, 3)), (4, (2, 0))])
def test_processes_of_a_job_have_gpus_or_processors(gpus: int, expected: tuple[int, int]) -> None:
    jobs = (Job(spread, Number(1)), Job(spread, Number(-1)), Job(leaf, Number()))
    plan = Plan.from_roots({"all": jobs})
    schedule = Schedule(plan, set(), slots=8, gpus=gpus, gpus_per_job=2, processes_per_job=3, together=1)
    calls = send_all(schedule)
    assert [(call.processes, call.cpus) for call in calls] == [expected, (1, 0 if gpus else 1), (1, 1)]


def test_job_with_stated_gpus_has_a_process_for_each() -> None:
    job = Job(spread, Number(), resources=Resources(gpus=4))
    [call] = send_all(Schedule(Plan.from_roots({"all": (job,)}), set(), processes_per_job=3))
    assert (call.gpus, call.processes) == (4.0, 4)


def test_cpu_tasks_run_next_to_gpu_calls() -> None:
    schedule = Schedule(trainings(100, scores=3), set(), slots=16, gpus=2)
    calls = send_all(schedule)
    assert [call.task for call in calls] == ["schedule.train"] * 2 + ["schedule.score"] * 3
    assert [call.gpus for call in calls] == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert schedule.on_gpus == 2


def test_gpu_gets_its_call_without_other_room() -> None:
    schedule = Schedule(trainings(10, scores=3), set(), slots=2, gpus=1)
    assert [call.task for call in iter(lambda: schedule.next(room=False), None)] == ["schedule.train"]
    assert [call.task for call in send_all(schedule)] == ["schedule.score"] * 3


def test_first_call_teaches_sharers_and_call_size() -> None:
    schedule = Schedule(trainings(2000), set(), gpus=1)
    (first,) = send_all(schedule)
    assert len(first.items) == 512
    answer(schedule, first, gpu_outcome(busy=0.5))
    calls = send_all(schedule)
    assert sizes(calls) == [40, 40, 40]  # two at one time and the next one
    assert {(call.gpus, call.sharers) for call in calls} == {(0.5, 2)}
    answer(schedule, calls[0], gpu_outcome(busy=0.9))
    assert [(len(call.items), call.sharers) for call in send_all(schedule)] == [(40, 2)]


def test_more_gpus_get_proportionally_more_calls() -> None:
    for gpus in (1, 3):
        schedule = Schedule(trainings(5000), set(), gpus=gpus)
        first = send_all(schedule)
        assert gpus == len(first)
        for call in first:
            answer(schedule, call, gpu_outcome(busy=0.3))
        assert gpus * 3 + gpus == len(send_all(schedule))


def test_groups_of_one_task_share_measurements() -> None:
    batch_key = [Job(train_alike, Number(i)) for i in range(40)]
    schedule = Schedule(Plan.from_roots({"summary": tuple(batch_key)}), set(), gpus=1)
    (first,) = send_all(schedule)
    assert {item.config.value % 2 for item in first.items} == {0}
    answer(schedule, first, gpu_outcome(busy=0.5))
    calls = send_all(schedule)
    assert sizes(calls) == [10, 10]
    assert {call.sharers for call in calls} == {2}
    answer(schedule, calls[0], gpu_outcome(busy=0.5))
    answer(schedule, calls[1], gpu_outcome(busy=0.5))
    assert schedule.is_over


def test_gpu_calls_shrink_towards_the_end() -> None:
    plan = trainings(2000)
    schedule = Schedule(plan, set(), gpus=2)
    running = send_all(schedule)
    call_sizes = list[int]()
    while running:
        answer(schedule, running.pop(0), gpu_outcome(busy=0.5, stack=20))
        more = send_all(schedule)
        running = running + more
        call_sizes = call_sizes + sizes(more)
    assert call_sizes[:6] == [80, 80, 80, 80, 80, 72]
    assert sorted(call_sizes, reverse=True) == call_sizes
    assert set(plan.jobs) == schedule.done
    assert schedule.is_over
    assert schedule.on_gpus == 0


def test_shared_gpu_short_of_memory_gets_fewer_sharers() -> None:
    schedule = Schedule(trainings(2000), set(), gpus=1)
    (first,) = send_all(schedule)
    answer(schedule, first, gpu_outcome(busy=0.25))
    calls = send_all(schedule)
    assert {call.sharers for call in calls} == {4}
    answer(schedule, calls[0], lambda key: Lost(key, "its node went away"))
    retries = send_all(schedule)
    assert {call.sharers for call in retries} == {4}
    answer(schedule, retries[0], lambda key: Lost(key, "OutOfMemoryError: CUDA out of memory", exhausted="device"))
    more = send_all(schedule)
    assert {call.sharers for call in more} == {3}
    answer(schedule, more[0], lambda key: Lost(key, "worker died", died=True))
    assert {call.sharers for call in send_all(schedule)} == {2}


def test_lone_call_without_memory_teaches_no_sharing() -> None:
    schedule = Schedule(trainings(2000), set(), gpus=1)
    (first,) = send_all(schedule)
    answer(schedule, first, lambda key: Lost(key, "OutOfMemoryError: CUDA out of memory", exhausted="device"))
    first_call, second_call = send_all(schedule)
    assert {1} == {first_call.sharers, second_call.sharers}
    answer(schedule, first_call, gpu_outcome(busy=0.25))
    assert {call.sharers for call in send_all(schedule)} == {4}


def test_call_too_large_for_gpu_is_halved() -> None:
    schedule = Schedule(trainings(8), set(), gpus=1)
    (first,) = send_all(schedule)
    answer(schedule, first, lambda key: Lost(key, "OutOfMemoryError: CUDA out of memory", exhausted="device"))
    halves = send_all(schedule)
    assert sizes(halves) == [4, 4]
    assert [call.gpus for call in halves] == [1.0, 1.0]
    for call in halves:
        answer(schedule, call)
    assert schedule.on_gpus == 0


def test_given_call_size_applies_on_gpus() -> None:
    assert sizes(send_all(Schedule(trainings(100), set(), gpus=2, together=3))) == [3, 3]


def test_unshared_gpu_gets_one_call_at_a_time() -> None:
    schedule = Schedule(trainings(2000), set(), gpus=1, sharers=1)
    (first,) = send_all(schedule)
    answer(schedule, first, gpu_outcome(busy=0.1))
    assert [(len(call.items), call.sharers, call.gpus) for call in send_all(schedule)] == [(40, 1, 1.0)]


def test_calls_follow_a_changing_number_of_gpus() -> None:
    schedule = Schedule(trainings(100), set(), slots=4)
    assert (schedule.next() or Call(0, "", (), 1.0)).gpus == 0.0
    schedule.gpus = 1
    calls = send_all(schedule)
    assert sizes(calls) == [99]
    assert [call.gpus for call in calls] == [1.0]
    schedule.gpus = 0
    answer(schedule, calls[0], lambda key: Lost(key, "its node went away"))
    assert {call.gpus for call in send_all(schedule)} == {0.0}
    assert schedule.on_gpus == 0


# Chains


@task(version=1, name="schedule.link", batch_key=lambda config: config.value % 10)
def link(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({})


def chains(count: int, length: int) -> Plan:
    """Chains of `length` links below one total. Links at equal positions of their chains form one group."""
    links: list[Job] = []
    for number in range(count):
        for position in range(length):
            before = links[-1] if position else None
            links.append(Job(link, Number(10 * number + position), after=before))
    return Plan.from_roots({"summary": Job(total, Number(), tuple(links))})


def test_link_is_sent_after_its_predecessor_with_candidates() -> None:
    plan = chains(1, 3)
    first, second, third, summary = plan.jobs
    schedule = Schedule(plan, set(), together=8)
    sent_items = []
    while call := schedule.next():
        assert schedule.next() is None
        sent_items += [(item.key, item.earlier_keys, item.leaves) for item in call.items]
        answer(schedule, call)
    assert sent_items == [
        (first, (), True),
        (second, (first,), True),
        (third, (second, first), False),
        (summary, (), False),
    ]


def test_link_after_stored_link_is_sent_at_once() -> None:
    plan = chains(1, 3)
    first, second, third, _ = plan.jobs
    assert [second] == keys(Schedule(plan, {first}).next())
    call = Schedule(plan, {second, third}).next()
    assert call is not None
    # no job would continue from it
    assert [(item.key, item.leaves) for item in call.items] == [(first, False)]


def test_links_after_a_failed_one_are_never_sent() -> None:
    plan = chains(2, 3)
    first, second, third, *other_links, _ = plan.jobs
    schedule = Schedule(plan, set())
    drain(schedule, lambda key: Failed(key, "ValueError: no", "") if key == second else done(key))
    assert schedule.is_over
    assert set(schedule.failed) == {second}
    assert schedule.done == {first, *other_links}
    continued = Schedule(plan, schedule.done, failed=schedule.failed)
    assert (continued.next(), continued.is_over) == (None, True)
    assert third not in continued.done


def test_chains_are_finished_before_others_begin() -> None:
    plan = chains(3, 3)
    links = list(plan.jobs)[:-1]
    sent_keys = []
    for call in drain(Schedule(plan, set(), together=1)):
        sent_keys.extend(call)
    assert links == sent_keys[:-1]


def test_lost_link_is_resent_before_the_next() -> None:
    plan = chains(1, 2)
    first, second, _ = plan.jobs
    schedule = Schedule(plan, set())
    call = schedule.next()
    assert call is not None
    answer(schedule, call, lambda key: Lost(key, "the node has gone"))
    retry = schedule.next()
    assert [first] == keys(retry)
    assert retry is not None
    answer(schedule, retry)
    assert [second] == keys(schedule.next())


def memory_outcome(memory: int) -> Callable[[str], Outcome]:
    return lambda key: Done(key, 1.0, "here:1", memory=memory)


def test_calls_request_the_largest_memory_of_their_group() -> None:
    schedule = Schedule(trainings(6, scores=2), set(), together=1)
    for memory in (300, 200):
        call = schedule.next()
        assert call is not None
        answer(schedule, call, memory_outcome(memory))
    remaining_calls = send_all(schedule)
    assert {(call.task, call.memory) for call in remaining_calls} == {("schedule.train", 300), ("schedule.score", 0)}


def test_job_that_starved_its_host_gets_a_host() -> None:
    schedule = Schedule(trainings(6), set(), together=1)
    first, second = schedule.next(), schedule.next()
    assert first is not None
    assert second is not None
    answer(schedule, first, memory_outcome(300))
    answer(schedule, second, lambda key: Lost(key, "the host's memory ran out", died=True, exhausted="host"))
    retry, *other_calls = send_all(schedule)
    assert retry.items == second.items
    assert retry.memory == math.inf
    assert {call.memory for call in other_calls} == {300}


def schedule_with_gpu_types(**gpus: int) -> Schedule:
    schedule = Schedule(trainings(2000), set(), gpus=sum(gpus.values()))
    schedule.gpu_types = gpus
    return schedule


def test_each_gpu_type_uses_its_own_measurements() -> None:
    """With 100 bytes per training, the small GPU holds one stack and the large one three, half or a tenth busy each."""
    schedule = schedule_with_gpu_types(small=1, large=2)
    first = send_all(schedule)
    assert sorted(call.gpu_type for call in first) == ["large", "large", "small"]
    for call in first:
        device, busy = (1500.0, 0.5) if call.gpu_type == "small" else (3500.0, 0.1)
        answer(schedule, call, gpu_outcome(busy, stack=10, member=100.0, device=device))
    shares = Counter((call.gpu_type, call.sharers, call.gpus) for call in send_all(schedule))
    assert shares == {("small", 1, 1.0): 1 + 1, ("large", 3, gpu_fraction(3)): 2 * 3 + 2}


def test_call_for_a_removed_gpu_type_goes_elsewhere() -> None:
    schedule = schedule_with_gpu_types(small=1, large=1)
    calls = send_all(schedule)
    assert not any(map(schedule.misplaced, calls))
    schedule.gpus = 1
    schedule.gpu_types = {"large": 1}
    assert all(map(schedule.misplaced, calls))  # one type is left: calls no longer name it
    schedule.take_back(calls)
    assert [call.gpu_type for call in send_all(schedule)] == [""]


def test_growing_cluster_requests_gpus_by_remaining_work() -> None:
    for seconds, gpus in ((1.0, 4), (600.0, 124), (0.01, 1)):
        schedule = Schedule(trainings(2000), set(), gpus=1)
        schedule.growing = True
        (first,) = send_all(schedule)
        assert len(first.items) == FIRST_GROWING

        def measured(key: str, seconds: float = seconds) -> Outcome:
            return Done(key, seconds, "here:1", measured=GpuMeasurement(16, 1.0, 1000.0, 0.9))

        answer(schedule, first, measured)
        assert gpus == len(send_all(schedule))
        assert gpus == schedule.on_gpus  # and no call waits behind these


def stated_trainings(count: int, resources: Resources, shared: int = 0) -> Plan:
    """Trainings that state their resources, and others that share GPUs."""
    jobs = [Job(train, Number(i), resources=resources) for i in range(count)]
    return Plan.from_roots({"all": (*jobs, *(Job(train, Number(count + i)) for i in range(shared)))})


@pytest.mark.parametrize("gpus", [0, 8])
def test_stated_resources_are_sent_with_each_call(gpus: int) -> None:
    resources = Resources(gpus=4, cpus=16, memory=ByteCount(2**36))
    calls = send_all(Schedule(stated_trainings(3, resources), set(), slots=64, gpus=gpus, gpus_per_job=2))
    assert sizes(calls) == [1, 1, 1]
    assert {(call.gpus, call.cpus, call.memory, call.resources) for call in calls} == {(4.0, 16, 2**36, resources)}
    assert not any(call.shares_gpu for call in calls)


def test_stated_gpus_leave_shared_ones_to_other_calls() -> None:
    schedule = Schedule(stated_trainings(2, Resources(gpus=2), shared=8), set(), gpus=2)
    calls = send_all(schedule)
    assert [call.gpus for call in calls if call.shares_gpu] == [1.0, 1.0]
    assert [call.gpus for call in calls if not call.shares_gpu] == [2.0, 2.0]
    assert schedule.on_gpus == 2
    assert not any(schedule.misplaced(call) for call in calls)
    for call in calls:
        answer(schedule, call)
    assert schedule.on_gpus == 0


def test_short_jobs_with_several_processors_keep_all_busy() -> None:
    plan = stated_trainings(64, Resources(cpus=4))
    assert sizes(send_all(Schedule(plan, set(), slots=8, seconds={plan.groups[next(iter(plan.jobs))]: 1e-3})))[0] == 16
