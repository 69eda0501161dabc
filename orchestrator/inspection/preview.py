"""Preview of a specification: its jobs, the stored ones, and the expected time of the rest."""

from __future__ import annotations

import os
from typing import Any

from orchestrator.executors import gpus
from orchestrator.planning.identity import run_id
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.run_folder import timings
from orchestrator.spec.resolve import pinned, wanted
from orchestrator.spec.specification import Spec, execution
from orchestrator.store import DEFAULT_STORE, is_there, open_store


def preview(asked: Spec) -> dict[str, Any]:
    """Jobs per task, planned, stored and missing; the expected seconds of the missing ones; the cells with their runs.

    Does not create a store.
    """
    place = asked.store or DEFAULT_STORE
    cells, how = wanted(asked), execution(asked)
    store = open_store(place, create=False) if is_there(place) else None
    cells = pinned(cells, {} if store is None else store.digests())
    plans = [plan_of(cell) for cell in cells]
    whole = Plan.union(plans)
    stored = set(whole.jobs) & (set() if store is None else store.keys())
    missing = whole.missing(stored)
    seconds = {} if store is None else timings.known(store.folder("runs"))
    slots = slots_at(how.address)
    counts, there, absent = whole.count(), whole.count(stored), whole.count(missing)
    return {
        "audit": asked.audit,
        "preset": asked.preset,
        "planned": len(whole.jobs),
        "stored": len(stored),
        "missing": len(missing),
        "expected_seconds": timings.expected(whole, missing, seconds, slots, how.address, gpus_at(how.address)),
        "slots": slots,
        "tasks": [
            {"task": task, "planned": count, "stored": there[task], "missing": absent[task]}
            for task, count in counts.items()
        ],
        "cells": [
            {"run": run_id(cell.audit, list(plan.jobs)), "setting": dict(cell.setting), "planned": len(plan.jobs)}
            for cell, plan in zip(cells, plans, strict=True)
        ],
    }


def gpus_at(address: str | None) -> int:
    """The number of this machine's GPUs that calls can use."""
    return min(1, gpus.count()) if address == "none" else gpus.count()


def slots_at(address: str | None) -> int:
    """The number of calls that run at a time: one in this process, else one per processor of this machine.

    A remote cluster is not queried: a preview connects to nothing.
    """
    if address == "none":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
