"""What plans are said to take beside what they take, on this machine: processor seconds of small presets, job by job.

python -m bench.prices
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from measurement.machine import machine_facts
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.pricing.price import Price, price_plan
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tasks.worker.hardware import threads

# Of each audit what makes a chain one job, since no state is kept here.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "unique_feature": {"canaries": 2},
    "forgetting": {},
    "density": {},
    "relational": {"link": 0},
    "deja_vu": {"link": 0},
}


def said_and_taken(audit: str, preset: str = "smoke") -> tuple[Price, float]:
    """The price of a preset that never ran here, and its processor seconds, one job after another on one thread."""
    settings = SETTINGS[audit]
    computed(planned(audit, preset, **settings, scale="tiny"))  # loads what all of them need
    plan = planned(audit, preset, **settings)
    price = price_plan(plan, list(plan.jobs), {}, 1, "none")
    return price, computed(plan)


def planned(audit: str, preset: str, **settings: Any) -> Plan:
    (cell,) = pin_cells(resolve_cells(Spec(audit, preset, settings)), {})
    return plan_of(cell)


def computed(plan: Plan) -> float:
    """The processor seconds of all jobs of a plan."""
    tables: dict[str, pa.Table] = {}
    begun = time.process_time()
    with threads(1):
        for key, job in plan.jobs.items():
            tables[key] = job.function(job.config, [tables[below] for below in plan.inputs[key]])
    return time.process_time() - begun


def main() -> None:
    for name, value in machine_facts().items():
        print(f"- {name}: {value}")
    print()
    print("| audit, preset smoke | said, s | from, to | taken, s | said / taken |")
    print("|---|---|---|---|---|")
    for audit in SETTINGS:
        price, taken = said_and_taken(audit)
        here = price.here
        between = f"{here.low:.2g}, {here.high:.2g}"
        print(f"| {audit} | {here.expected:.2g} | {between} | {taken:.2g} | {here.expected / taken:.2f} |", flush=True)


if __name__ == "__main__":
    main()
