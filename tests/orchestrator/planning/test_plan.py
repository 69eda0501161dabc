"""A plan holds each job once, inputs first, and shrinks where something cannot be had."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from orchestrator.planning.plan import Plan
from tasks.contract.job import Inputs, Job, task


@dataclass(frozen=True)
class Number:
    value: int = 0


@task(version=1, name="plan.leaf")
def leaf(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({"value": [config.value]})


@task(version=1, name="plan.pair")
def pair(config: Number, inputs: Inputs) -> pa.Table:
    return pa.concat_tables(inputs)


@task(version=1, name="plan.total", gathers=True)
def total(config: Number, inputs: Inputs) -> pa.Table:
    return pa.concat_tables(inputs)


def a_plan() -> Plan:
    """Four leaves in two pairs below one total; the leaf 0 is written twice."""
    pairs = (
        Job(pair, Number(0), (Job(leaf, Number(0)), Job(leaf, Number(1)))),
        Job(pair, Number(1), (Job(leaf, Number(0)), Job(leaf, Number(2)))),
    )
    return Plan.from_roots({"summary": Job(total, Number(), pairs), "pairs": pairs})


def test_equal_jobs_are_one_and_inputs_come_first() -> None:
    plan = a_plan()
    assert dict(plan.count()) == {"plan.leaf": 3, "plan.pair": 2, "plan.total": 1}
    seen: set[str] = set()
    for key, inputs in plan.inputs.items():
        assert seen.issuperset(inputs)
        seen.add(key)
    assert len(plan.roots["pairs"]) == 2


def test_planning_twice_gives_the_same_keys() -> None:
    assert a_plan().inputs == a_plan().inputs


def test_what_is_missing_is_what_is_not_stored() -> None:
    plan = a_plan()
    stored = set(list(plan.jobs)[:4])
    assert list(plan.jobs)[4:] == plan.missing(stored)


def test_without_a_failed_job_what_gathers_goes_on_and_what_needs_it_is_lost() -> None:
    plan = a_plan()
    lost = next(key for key, job in plan.jobs.items() if job.config == Number(2))
    less = plan.drop_keys({lost})
    assert dict(less.count()) == {"plan.leaf": 2, "plan.pair": 1, "plan.total": 1}
    assert less.roots["summary"] != plan.roots["summary"]
    assert set(less.roots["pairs"]) < set(plan.roots["pairs"])


def test_without_nothing_a_plan_stays_as_it_is() -> None:
    plan = a_plan()
    assert plan.inputs == plan.drop_keys(set()).inputs


def test_what_gathers_goes_on_as_long_as_one_input_is_left() -> None:
    leaves = [Job(leaf, Number(value)) for value in range(3)]
    inner = Job(total, Number(1), tuple(leaves[:2]))
    plan = Plan.from_roots({"summary": Job(total, Number(2), (inner, leaves[2]))})
    first, second, third = (key for key, job in plan.jobs.items() if job.function is leaf)

    def left(lost: set[str]) -> list[tuple[str, int, int]]:
        less = plan.drop_keys(lost)
        return [(less.task(key), job.config.value, len(job.inputs)) for key, job in less.jobs.items()]

    assert left({first}) == [("plan.leaf", 1, 0), ("plan.total", 1, 1), ("plan.leaf", 2, 0), ("plan.total", 2, 2)]
    assert left({first, second}) == [("plan.leaf", 2, 0), ("plan.total", 2, 1)]
    assert left({third}) == [("plan.leaf", 0, 0), ("plan.leaf", 1, 0), ("plan.total", 1, 2), ("plan.total", 2, 1)]
    assert left({first, second, third}) == []


def test_a_job_that_gathers_nothing_is_kept_where_it_reads_nothing() -> None:
    plan = Plan.from_roots({"alone": Job(total, Number(7)), "summary": Job(total, Number(), (Job(leaf, Number(0)),))})
    less = plan.drop_keys({next(key for key, job in plan.jobs.items() if job.function is leaf)})
    assert {"alone": plan.roots["alone"]} == dict(less.roots)


def test_what_is_kept_of_a_plan_keeps_its_keys_where_nothing_below_it_changed() -> None:
    plan = a_plan()
    lost = next(key for key, job in plan.jobs.items() if job.config == Number(2))
    less = plan.drop_keys({lost})
    assert plan.roots["summary"] != less.roots["summary"]
    assert less.jobs.keys() - plan.jobs.keys() == set(less.roots["summary"])


def test_a_link_after_one_that_is_not_planned_is_kept_whatever_fails() -> None:
    before, link, other = Job(leaf, Number(0)), Job(leaf, Number(1)), Job(leaf, Number(2))
    plan = Plan.from_roots({"summary": Job(total, Number(), (replace(link, after=before), other))})
    lost = next(key for key, job in plan.jobs.items() if job.config == Number(2))
    assert dict(plan.drop_keys({lost}).count()) == {"plan.leaf": 1, "plan.total": 1}


def test_what_a_key_waits_for_is_there_once() -> None:
    first = Job(leaf, Number(0))
    plan = Plan.from_roots({"summary": Job(pair, Number(1), (first, first), after=first)})
    before, last = plan.jobs
    assert ((before, before), (before,)) == (plan.inputs[last], plan.dependencies(last))


def test_what_reads_a_failed_job_is_found_at_any_distance() -> None:
    plan = a_plan()
    lost = next(key for key, job in plan.jobs.items() if job.config == Number(2))
    assert {lost, plan.roots["pairs"][1], plan.roots["summary"][0]} == plan.dependents({lost})


def test_a_chain_deeper_than_pythons_stack_is_planned() -> None:
    job = Job(leaf, Number(0))
    for value in range(5000):
        job = Job(total, Number(value), (job,))
    assert len(Plan.from_roots({"summary": job}).jobs) == 5001


# Chains


def a_chain(length: int) -> list[Job]:
    links: list[Job] = []
    for number in range(length):
        links.append(Job(leaf, Number(number), after=links[-1] if links else None))
    return links


def test_links_come_in_their_order_however_they_are_asked_for_and_their_keys_know_nothing_of_it() -> None:
    links = a_chain(4)
    plan = Plan.from_roots({"summary": tuple(reversed(links))})
    assert [job.config.value for job in plan.jobs.values()] == [0, 1, 2, 3]
    alone = Plan.from_roots({"summary": tuple(Job(leaf, link.config) for link in links)})
    assert list(alone.jobs) == list(plan.jobs)
    keys = list(plan.jobs)
    assert dict(zip(keys[1:], keys[:-1], strict=True)) == plan.after
    assert (keys[2],) == plan.dependencies(keys[3])
    assert [keys[2], keys[1], keys[0]] == list(plan.chain(keys[3]))


def test_a_link_before_that_nothing_asks_for_is_not_planned_and_not_waited_for_but_known() -> None:
    links = a_chain(3)
    keys = list(Plan.from_roots({"summary": tuple(links)}).jobs)
    plan = Plan.from_roots({"summary": links[-1]})
    assert [keys[2]] == list(plan.jobs)
    assert plan.dependencies(keys[2]) == ()
    assert [keys[1], keys[0]] == list(plan.chain(keys[2]))


def test_a_link_that_waits_has_those_before_it_planned_though_nothing_reads_them() -> None:
    links: list[Job] = []
    for number in range(4):
        # The first of all is not waited for, and reads something.
        reads = (Job(leaf, Number(9)),) if number == 1 else ()
        last = links[-1] if links else None
        links.append(Job(pair, Number(number), reads, after=last, waits=number > 1))
    plan = Plan.from_roots({"summary": Job(total, Number(), (links[3],))})
    planned = [(job.function, job.config.value) for job in plan.jobs.values()]
    assert [(leaf, 9), (pair, 1), (pair, 2), (pair, 3), (total, 0)] == planned
    keys = list(plan.jobs)
    assert [(keys[0],), (keys[1],), (keys[2],)] == [plan.dependencies(key) for key in keys[1:4]]
    assert Plan.from_roots({"summary": Job(total, Number(), (replace(links[3], after=None),))}).roots == plan.roots
    less = plan.drop_keys({keys[2]})
    assert dict(less.jobs) == {}


def test_a_link_that_one_reader_waits_for_and_another_does_not_is_planned() -> None:
    first = Job(leaf, Number(0))
    second, again = (Job(leaf, Number(1), after=first, waits=waits) for waits in (False, True))
    third = Job(leaf, Number(2), after=second)
    assert len(Plan.from_roots({"summary": (third, again)}).jobs) == 3
    assert len(Plan.from_roots({"summary": (again, third)}).jobs) == 3


def test_cells_that_reach_different_epochs_share_a_chain_in_its_order() -> None:
    longer, other = (Plan.from_roots({"summary": links}) for links in (a_chain(4)[3], tuple(a_chain(3))))
    union = Plan.union([longer, other])
    assert [job.config.value for job in union.jobs.values()] == [0, 1, 2, 3]
    assert len(union.after) == 3


def test_what_comes_after_a_lost_link_is_lost_and_so_is_what_reads_it() -> None:
    links = a_chain(3)
    plan = Plan.from_roots({"summary": Job(total, Number(), tuple(links)), "last": Job(pair, Number(), (links[2],))})
    second = list(plan.jobs)[1]
    assert len(plan.dependents({second})) == 4
    less = plan.drop_keys({second})
    assert [job.config.value for job in less.jobs.values()] == [0, 0]
    assert {"summary"} == set(less.roots)


def test_a_long_chain_is_planned_in_no_time() -> None:
    assert len(Plan.from_roots({"summary": tuple(reversed(a_chain(5000)))}).jobs) == 5000


def test_links_that_come_after_each_other_are_refused() -> None:
    one = Job(leaf, Number(0), after=Job(leaf, Number(1)))
    with pytest.raises(ValueError, match=r"plan\.leaf [0-9a-f]{12} comes after a link that comes after it"):
        Plan.from_roots({"summary": (one, Job(leaf, Number(1), after=one))})
