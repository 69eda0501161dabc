"""Compares predicted with measured processor seconds of small presets on this machine, job by job.

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

# Settings that turn each chain into a single job, because this script keeps no checkpoints between jobs.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "unique_feature": {"canaries": 2},
    "forgetting": {},
    "density": {},
    "relational": {"link": 0},
    "deja_vu": {"link": 0},
}


def price_and_measure(audit: str, preset: str = "smoke") -> tuple[Price, float]:
    """Return the price of a preset that has never run here, and its measured processor seconds.

    The jobs are run one at a time on one thread.
    """
    settings = SETTINGS[audit]
    measure_seconds(plan_preset(audit, preset, **settings, scale="tiny"))  # imports the modules that all jobs use
    plan = plan_preset(audit, preset, **settings)
    price = price_plan(plan, list(plan.jobs), {}, 1, "none")
    return price, measure_seconds(plan)


def plan_preset(audit: str, preset: str, **settings: Any) -> Plan:
    (cell,) = pin_cells(resolve_cells(Spec(audit, preset, settings)), {})
    return plan_of(cell)


def measure_seconds(plan: Plan) -> float:
    """Run all jobs in a plan and return their processor seconds."""
    tables: dict[str, pa.Table] = {}
    start = time.process_time()
    with threads(1):
        for key, job in plan.jobs.items():
            tables[key] = job.function(job.config, [tables[below] for below in plan.inputs[key]])
    return time.process_time() - start


def main() -> None:
    for name, value in machine_facts().items():
        print(f"- {name}: {value}")
    print()
    print("| audit, preset smoke | predicted, s | from, to | measured, s | predicted / measured |")
    print("|---|---|---|---|---|")
    for audit in SETTINGS:
        price, measured = price_and_measure(audit)
        price_here = price.here
        between = f"{price_here.low:.2g}, {price_here.high:.2g}"
        ratio = price_here.expected / measured
        print(f"| {audit} | {price_here.expected:.2g} | {between} | {measured:.2g} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
