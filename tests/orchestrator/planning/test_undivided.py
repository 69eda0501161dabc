"""Trainings that stay in one process although more are requested are listed before work begins."""

from __future__ import annotations

import pyarrow as pa
import pytest

from orchestrator.planning.plan import Plan
from orchestrator.planning.undivided import describe_undivided
from orchestrator.spec.options import Execution
from tasks.contract.job import Inputs, Job, NoSettings, task


@task(version=1, name="undivided.train", trains=1)
def train(config: NoSettings, inputs: Inputs) -> pa.Table:
    return pa.table({})


@task(version=1, name="undivided.divide", trains=1, spreads=True)
def divide(config: NoSettings, inputs: Inputs) -> pa.Table:
    return pa.table({})


@task(version=1, name="undivided.score")
def score(config: NoSettings, inputs: Inputs) -> pa.Table:
    return pa.table({})


@pytest.mark.parametrize(
    ("execution", "lines"),
    [
        (Execution(), []),
        (
            Execution(processes_per_job=2),
            ["undivided.train: 1 training of one process each, since its steps cannot be divided"],
        ),
        (
            Execution(gpus_per_job=2),
            ["undivided.train: 1 training of one process each, since its steps cannot be divided"],
        ),
    ],
)
def test_trainings_of_one_process_are_listed(execution: Execution, lines: list[str]) -> None:
    plan = Plan.from_roots({"all": tuple(Job(function, NoSettings()) for function in (train, divide, score))})
    assert list(describe_undivided(plan, list(plan.jobs), execution)) == lines
