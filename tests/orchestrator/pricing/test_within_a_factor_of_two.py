"""What plans are said to take, beside what they take: by processor time, as a busy machine makes all clocks slow."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.planning.plan import Plan, plan_of
from orchestrator.pricing.price import priced
from orchestrator.spec.resolve import pinned, wanted
from orchestrator.spec.specification import Spec
from tasks.hardware import threads


def planned(audit: str, preset: str, **settings: Any) -> Plan:
    (cell,) = pinned(wanted(Spec(audit, preset, settings)), {})
    return plan_of(cell)


def computed(plan: Plan) -> float:
    """The processor seconds of all jobs of a plan, one after another on one thread."""
    tables: dict[str, pa.Table] = {}
    begun = time.process_time()
    with threads(1):
        for key, job in plan.jobs.items():
            tables[key] = job.function(job.config, [tables[below] for below in plan.inputs[key]])
    return time.process_time() - begun


@pytest.mark.parametrize(
    ("audit", "settings"),
    [
        ("unique_feature", {"canaries": 2}),
        pytest.param("forgetting", {}, marks=pytest.mark.slow),
        pytest.param("density", {}, marks=pytest.mark.slow),
        pytest.param("relational", {"link": 0}, marks=pytest.mark.slow),
        pytest.param("deja_vu", {"link": 0}, marks=pytest.mark.slow),
    ],
)
def test_a_small_preset_takes_what_it_was_said_to_within_a_factor_of_two(audit: str, settings: dict[str, Any]) -> None:
    computed(planned(audit, "smoke", **settings, scale="tiny"))  # loads what all of them need
    plan = planned(audit, "smoke", **settings)
    price = priced(plan, list(plan.jobs), {}, 1, "none")
    taken = computed(plan)
    assert () == price.unknown
    assert 0.5 < price.here.expected / taken < 2, (price.here, taken)
    assert price.here.low < taken < price.here.high
