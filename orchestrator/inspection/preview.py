"""Preview of a specification: its jobs, the stored ones, and the price of the rest."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.executors import gpus
from orchestrator.inspection.labels import describe_left_out
from orchestrator.planning.extras import check_extras
from orchestrator.planning.identity import run_id
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.pricing.price import Price, describe_price, price_plan
from orchestrator.run_folder import timings
from orchestrator.spec.resolve import pin_available, resolve_cells
from orchestrator.spec.specification import GpusName, Spec, execution
from orchestrator.store import DEFAULT_STORE, Store, is_there, open_store


def preview(asked: Spec) -> dict[str, Any]:
    """Jobs per task, planned, stored and missing; the price of the missing ones; the cells with their runs.

    Of the price, `expected_seconds` are None where something in the plan is like nothing that was ever timed, which
    `unknown` then names; the time is between `seconds_low` and `seconds_high`, as far as that much is known. All of
    that is of `cells`; `left_out` are those of the preset whose data are missing. Does not create a store.
    """
    place = asked.store or DEFAULT_STORE
    cells, how = resolve_cells(asked), execution(asked)
    store = open_store(place, create=False) if is_there(place) else None
    cells, left_out = pin_available(cells, {} if store is None else store.digests())
    plans = [plan_of(cell) for cell in cells]
    whole = Plan.union(plans)
    stored = set(whole.jobs) & (set() if store is None else store.keys())
    missing = whole.missing(stored)
    slots = slots_at(how.address)
    check_extras(whole, lambda: stored, how.address)
    price = price_of(whole, missing, store, how.address, how.gpus)
    counts, there, absent = whole.count(), whole.count(stored), whole.count(missing)
    return {
        "audit": asked.audit,
        "preset": asked.preset,
        "planned": len(whole.jobs),
        "stored": len(stored),
        "missing": len(missing),
        **price_json(price, slots),
        "slots": slots,
        "tasks": [
            {"task": task, "planned": count, "stored": there[task], "missing": absent[task]}
            for task, count in counts.items()
        ],
        "cells": [
            {"run": run_id(cell.audit, list(plan.jobs)), "setting": dict(cell.setting), "planned": len(plan.jobs)}
            for cell, plan in zip(cells, plans, strict=True)
        ],
        "left_out": [
            {"setting": dict(cell.setting), "problem": cell.problem, "line": line}
            for cell, line in zip(left_out, describe_left_out(cells, left_out), strict=True)
        ],
    }


def price_of(
    plan: Plan, missing: Iterable[str], store: Store | None, address: str | None, wanted: GpusName = "auto"
) -> Price:
    """The price of a plan's missing jobs on this machine, by the timings in the store where it has some."""
    known = {} if store is None else timings.mean_seconds(store.folder("runs"))

    def speed_folder() -> Path | None:
        """The folder of machines' speeds; None where the store takes nothing."""
        try:
            return None if store is None else store.folder("speed")
        except StoreError:
            return None

    return price_plan(plan, missing, known, slots_at(address), address, gpus_at(address, wanted), speed_folder)


def price_json(price: Price, slots: int) -> dict[str, Any]:
    """A price as numbers and in words."""
    low, high = price.bounds
    return {
        "expected_seconds": None if price.unknown else price.here.expected,
        "seconds_low": low,
        "seconds_high": high,
        "unknown": list(price.unknown),
        "time": describe_price(price, slots),
    }


def gpus_at(address: str | None, wanted: GpusName = "auto") -> int:
    """The number of this machine's GPUs that calls can use, unless none is wanted."""
    if wanted == "none":
        return 0
    return min(1, gpus.count()) if address == "none" else gpus.count()


def slots_at(address: str | None) -> int:
    """The number of calls that run at a time: one in this process, else one per processor of this machine.

    A remote cluster is not queried: a preview connects to nothing.
    """
    if address == "none":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
