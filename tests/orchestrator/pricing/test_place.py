"""Without an address, short runs on a machine without a GPU use a pool of processes, and all others Ray."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.planning.plan import Plan
from orchestrator.pricing import place
from orchestrator.spec.options import Execution
from tasks.contract.job import Job
from tests.orchestrator.pricing.test_price import a_plan
from tests.orchestrator.scheduling.test_schedule import Number, train

PARTS, PART, TOTAL = a_plan(8)
SHORT = {PART: 3.0, TOTAL: 1.0}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two processors and a GPU, in a process that does not use Ray."""
    monkeypatch.setattr(place.environment, "count_processors", lambda: 2)
    monkeypatch.setattr(place.environment, "count_gpus", lambda: 1)
    monkeypatch.setattr(place, "_uses_ray", lambda: False)


@pytest.mark.parametrize(
    ("execution", "seconds", "address"),
    [
        ({}, SHORT, "pool"),
        ({}, {**SHORT, PART: 30.0}, None),  # two minutes
        ({}, {TOTAL: 1.0}, None),  # the time of the parts is unknown
        ({"address": "none"}, SHORT, "none"),
        ({"address": "pool"}, {}, "pool"),
        ({"dashboard": True}, SHORT, None),
        ({"gpus": "wait"}, SHORT, None),
        ({"gpus_per_job": 2}, SHORT, None),
    ],
)
def test_short_runs_use_a_pool(execution: dict[str, Any], seconds: dict[str, float], address: str | None) -> None:
    assert place.choose_address(Execution(**execution), PARTS, list(PARTS.jobs), seconds) == address


@pytest.mark.parametrize(("gpus", "address"), [("auto", None), ("none", "pool")])
def test_jobs_that_would_use_a_gpu_use_ray(gpus: Any, address: str | None) -> None:
    plan = Plan.from_roots({"trained": Job(train, Number(1))})
    seconds = dict.fromkeys(plan.groups.values(), 1.0)
    assert place.choose_address(Execution(gpus=gpus), plan, list(plan.jobs), seconds) == address


def test_connected_process_uses_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_uses_ray", lambda: True)
    assert place.choose_address(Execution(), PARTS, list(PARTS.jobs), SHORT) is None
