"""A plan contains each job once, inputs first, and can leave out failed jobs."""

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
    """Four leaves in two pairs below one total. Leaf 0 occurs twice."""
    pairs = (
        Job(pair, Number(0), (Job(leaf, Number(0)), Job(leaf, Number(1)))),
        Job(pair, Number(1), (Job(leaf, Number(0)), Job(leaf, Number(2)))),
    )
    return Plan.from_roots({"summary": Job(total, Number(), pairs), "pairs": pairs})


def test_equal_jobs_are_one_and_inputs_come_first() -> None:
    plan = a_plan()
    assert dict(plan.count()) == {"plan.leaf": 3, "plan.pair": 2, "plan.total": 1}
    earlier_keys: set[str] = set()
    for key, inputs in plan.inputs.items():
        assert earlier_keys.issuperset(inputs)
        earlier_keys.add(key)
    assert len(plan.roots["pairs"]) == 2


def test_planning_twice_gives_the_same_keys() -> None:
    assert a_plan().inputs == a_plan().inputs


def test_unstored_keys_are_missing() -> None:
    plan = a_plan()
    stored_keys = set(list(plan.jobs)[:4])
    assert list(plan.jobs)[4:] == plan.missing(stored_keys)


def test_only_gathering_jobs_survive_a_failed_input() -> None:
    plan = a_plan()
    failed_key = next(key for key, job in plan.jobs.items() if job.config == Number(2))
    less = plan.drop_keys({failed_key})
    assert dict(less.count()) == {"plan.leaf": 2, "plan.pair": 1, "plan.total": 1}
    assert less.roots["summary"] != plan.roots["summary"]
    assert set(less.roots["pairs"]) < set(plan.roots["pairs"])


def test_dropping_nothing_leaves_plan_unchanged() -> None:
    plan = a_plan()
    assert plan.inputs == plan.drop_keys(set()).inputs


def test_gathering_job_stays_while_an_input_remains() -> None:
    leaves = [Job(leaf, Number(value)) for value in range(3)]
    inner = Job(total, Number(1), tuple(leaves[:2]))
    plan = Plan.from_roots({"summary": Job(total, Number(2), (inner, leaves[2]))})
    first, second, third = (key for key, job in plan.jobs.items() if job.function is leaf)

    def remaining_jobs(failed_key: set[str]) -> list[tuple[str, int, int]]:
        less = plan.drop_keys(failed_key)
        result = []
        for key, job in less.jobs.items():
            result.append((less.task(key), job.config.value, len(job.inputs)))
        return result

    assert remaining_jobs({first}) == [
        ("plan.leaf", 1, 0),
        ("plan.total", 1, 1),
        ("plan.leaf", 2, 0),
        ("plan.total", 2, 2),
    ]
    assert remaining_jobs({first, second}) == [("plan.leaf", 2, 0), ("plan.total", 2, 1)]
    assert remaining_jobs({third}) == [
        ("plan.leaf", 0, 0),
        ("plan.leaf", 1, 0),
        ("plan.total", 1, 2),
        ("plan.total", 2, 1),
    ]
    assert remaining_jobs({first, second, third}) == []


def test_gathering_job_without_inputs_is_kept() -> None:
    plan = Plan.from_roots({"alone": Job(total, Number(7)), "summary": Job(total, Number(), (Job(leaf, Number(0)),))})
    less = plan.drop_keys({next(key for key, job in plan.jobs.items() if job.function is leaf)})
    assert dict(less.roots) == {"alone": plan.roots["alone"]}


def test_remaining_jobs_keep_their_keys() -> None:
    plan = a_plan()
    failed_key = next(key for key, job in plan.jobs.items() if job.config == Number(2))
    less = plan.drop_keys({failed_key})
    assert plan.roots["summary"] != less.roots["summary"]
    assert less.jobs.keys() - plan.jobs.keys() == set(less.roots["summary"])


def test_link_after_an_unplanned_one_survives_failures() -> None:
    before = Job(leaf, Number(0))
    link = Job(leaf, Number(1))
    failing = Job(leaf, Number(2))
    plan = Plan.from_roots({"summary": Job(total, Number(), (replace(link, after=before), failing))})
    failed_key = next(key for key, job in plan.jobs.items() if job.config == Number(2))
    assert dict(plan.drop_keys({failed_key}).count()) == {"plan.leaf": 1, "plan.total": 1}


def test_dependencies_of_a_key_are_unique() -> None:
    first = Job(leaf, Number(0))
    plan = Plan.from_roots({"summary": Job(pair, Number(1), (first, first), after=first)})
    before, last = plan.jobs
    assert (before, before) == plan.inputs[last]
    assert (before,) == plan.dependencies(last)


def test_dependents_are_found_at_any_depth() -> None:
    plan = a_plan()
    failed_key = next(key for key, job in plan.jobs.items() if job.config == Number(2))
    assert plan.dependents({failed_key}) == {failed_key, plan.roots["pairs"][1], plan.roots["summary"][0]}


def test_chain_deeper_than_python_stack_is_planned() -> None:
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


def test_links_keep_order_without_changing_keys() -> None:
    links = a_chain(4)
    plan = Plan.from_roots({"summary": tuple(reversed(links))})
    assert [job.config.value for job in plan.jobs.values()] == [0, 1, 2, 3]
    alone = Plan.from_roots({"summary": tuple(Job(leaf, link.config) for link in links)})
    assert list(alone.jobs) == list(plan.jobs)
    keys = list(plan.jobs)
    assert dict(zip(keys[1:], keys[:-1], strict=True)) == plan.after
    assert (keys[2],) == plan.dependencies(keys[3])
    assert [keys[2], keys[1], keys[0]] == list(plan.chain(keys[3]))


def test_unrequested_earlier_links_are_known_but_not_planned() -> None:
    links = a_chain(3)
    keys = list(Plan.from_roots({"summary": tuple(links)}).jobs)
    plan = Plan.from_roots({"summary": links[-1]})
    assert [keys[2]] == list(plan.jobs)
    assert plan.dependencies(keys[2]) == ()
    assert [keys[1], keys[0]] == list(plan.chain(keys[2]))


def test_waiting_link_plans_its_earlier_links() -> None:
    links: list[Job] = []
    for number in range(4):
        # The first of all is not waited for, and reads something.
        reads = (Job(leaf, Number(9)),) if number == 1 else ()
        last = links[-1] if links else None
        links.append(Job(pair, Number(number), reads, after=last, waits=number > 1))
    plan = Plan.from_roots({"summary": Job(total, Number(), (links[3],))})
    planned_jobs = [(job.function, job.config.value) for job in plan.jobs.values()]
    assert planned_jobs == [(leaf, 9), (pair, 1), (pair, 2), (pair, 3), (total, 0)]
    keys = list(plan.jobs)
    assert [(keys[0],), (keys[1],), (keys[2],)] == [plan.dependencies(key) for key in keys[1:4]]
    assert Plan.from_roots({"summary": Job(total, Number(), (replace(links[3], after=None),))}).roots == plan.roots
    less = plan.drop_keys({keys[2]})
    assert dict(less.jobs) == {}


def test_link_that_one_reader_waits_for_is_planned() -> None:
    first = Job(leaf, Number(0))
    second = Job(leaf, Number(1), after=first, waits=False)
    waiting = Job(leaf, Number(1), after=first, waits=True)
    third = Job(leaf, Number(2), after=second)
    assert len(Plan.from_roots({"summary": (third, waiting)}).jobs) == 3
    assert len(Plan.from_roots({"summary": (waiting, third)}).jobs) == 3


def test_plans_of_different_length_share_a_chain() -> None:
    longer = Plan.from_roots({"summary": a_chain(4)[3]})
    shorter = Plan.from_roots({"summary": tuple(a_chain(3))})
    union = Plan.union([longer, shorter])
    assert [job.config.value for job in union.jobs.values()] == [0, 1, 2, 3]
    assert len(union.after) == 3


def test_links_after_a_dropped_one_are_dropped() -> None:
    links = a_chain(3)
    plan = Plan.from_roots({"summary": Job(total, Number(), tuple(links)), "last": Job(pair, Number(), (links[2],))})
    second = list(plan.jobs)[1]
    assert len(plan.dependents({second})) == 4
    less = plan.drop_keys({second})
    assert [job.config.value for job in less.jobs.values()] == [0, 0]
    assert set(less.roots) == {"summary"}


def test_long_chain_is_planned_quickly() -> None:
    assert len(Plan.from_roots({"summary": tuple(reversed(a_chain(5000)))}).jobs) == 5000


def test_circular_links_are_refused() -> None:
    one = Job(leaf, Number(0), after=Job(leaf, Number(1)))
    with pytest.raises(ValueError, match=r"plan\.leaf [0-9a-f]{12} comes after a link that comes after it"):
        Plan.from_roots({"summary": (one, Job(leaf, Number(1), after=one))})
