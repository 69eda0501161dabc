"""Compares predicted with measured processor seconds of small presets on this machine, job by job.

python -m bench.prices
python -m bench.prices --checks     compare prices by operations with the timings in bench/results
python -m bench.prices --published  print the prices of the published presets on PUBLISHED_ON, for docs/scale.md
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from bench.price_checks import print_checks
from measurement.machine import machine_facts
from orchestrator.errors import EngramError
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.pricing.hardware import parse_hardware
from orchestrator.pricing.price import Price, describe_hours, describe_price, price_on, price_plan
from orchestrator.spec import audits
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tasks.datasets.places import use_outlines
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


PUBLISHED_ON = "8xH100"


def price_published(audit: str, preset: str, on: str = PUBLISHED_ON) -> Price:
    """Return the price of a preset on named hardware. Data and models that are missing here have published sizes."""
    with use_outlines(everything=True):
        plan = Plan.union([plan_of(cell) for cell in pin_cells(resolve_cells(Spec(audit, preset)), {})])
        return price_on(plan, list(plan.jobs), {}, parse_hardware(on, 1))


def published_presets() -> Iterator[tuple[str, str]]:
    """Yield the presets that repeat a part of a paper, by audit and name."""
    for audit in audits.names():
        entry = audits.find(audit).audit
        for preset, part in entry.wording.repeats.items():
            if not part.startswith("ours"):
                yield audit, preset


def print_published() -> None:
    """Print a table row for each published preset."""
    print(f"| audit | preset | GPU hours on {PUBLISHED_ON} | wall time | tasks that were never timed |")
    print("|---|---|---|---|---|")
    for audit, preset in published_presets():
        try:
            price = price_published(audit, preset)
        except EngramError as error:  # for example without predictions that the authors published
            print(f"| `{audit}` | `{preset}` | | | {error} |")
            continue
        time = describe_price(price, 1).partition(",")[0].removesuffix(f" on {PUBLISHED_ON}")
        untimed = ", ".join(price.unknown) or "none"
        print(f"| `{audit}` | `{preset}` | {describe_hours(price.gpu_hours)} | {time} | {untimed} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checks", action="store_true")
    parser.add_argument("--published", action="store_true")
    arguments = parser.parse_args()
    if arguments.checks:
        print_checks()
    elif arguments.published:
        print_published()
    else:
        print_measured()


def print_measured() -> None:
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
