"""A plan holds each job once, inputs first, and shrinks where something cannot be had."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from orchestrator.plan import Plan
from tasks.job import Inputs, Job, task


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
    return Plan.below({"summary": Job(total, Number(), pairs), "pairs": pairs})


def test_equal_jobs_are_one_and_inputs_come_first() -> None:
    plan = a_plan()
    assert {"plan.leaf": 3, "plan.pair": 2, "plan.total": 1} == dict(plan.count())
    seen: set[str] = set()
    for key, inputs in plan.inputs.items():
        assert seen.issuperset(inputs)
        seen.add(key)
    assert 2 == len(plan.roots["pairs"])


def test_planning_twice_gives_the_same_keys() -> None:
    assert a_plan().inputs == a_plan().inputs


def test_what_is_missing_is_what_is_not_stored() -> None:
    plan = a_plan()
    stored = set(list(plan.jobs)[:4])
    assert list(plan.jobs)[4:] == plan.missing(stored)


def test_without_a_failed_job_what_gathers_goes_on_and_what_needs_it_is_lost() -> None:
    plan = a_plan()
    lost = next(key for key, job in plan.jobs.items() if job.config == Number(2))
    less = plan.without({lost})
    assert {"plan.leaf": 2, "plan.pair": 1, "plan.total": 1} == dict(less.count())
    assert less.roots["summary"] != plan.roots["summary"]
    assert set(less.roots["pairs"]) < set(plan.roots["pairs"])


def test_without_nothing_a_plan_stays_as_it_is() -> None:
    plan = a_plan()
    assert plan.inputs == plan.without(set()).inputs


def test_what_reads_a_failed_job_is_found_at_any_distance() -> None:
    plan = a_plan()
    lost = next(key for key, job in plan.jobs.items() if job.config == Number(2))
    assert {lost, plan.roots["pairs"][1], plan.roots["summary"][0]} == plan.upon({lost})


def test_a_chain_deeper_than_pythons_stack_is_planned() -> None:
    job = Job(leaf, Number(0))
    for value in range(5000):
        job = Job(total, Number(value), (job,))
    assert 5001 == len(Plan.below({"summary": job}).jobs)
