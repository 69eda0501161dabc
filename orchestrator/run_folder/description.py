"""Conversion of a cell to the content of its run's `run.json`, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.errors import EngramError
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.quantities import jsonable
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits
from orchestrator.spec.config_parts import plain
from orchestrator.spec.fields import coerce
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Spec
from orchestrator.store.provenance import commit, versions


def cell_description(cell: Cell) -> dict[str, Any]:
    """The content of `run.json` for a cell."""
    about = {
        "audit": cell.audit,
        "preset": cell.preset,
        "setting": dict(cell.setting),
        "config": plain(cell.config),
        "versions": dict(versions()),
        "commit": commit(),
    }
    return about | spec_description(cell.asked_alone)


def sweep_description(cells: Sequence[Cell], runs: Sequence[str]) -> dict[str, Any]:
    """The content of `run.json` for a sweep of these cells, whose runs are given in the same order."""
    specs = [cell.asked for cell in cells]
    whole = specs[0] if all(spec == specs[0] for spec in specs) else None
    # A cell's folder may be older than the sweep and not hold its setting, so the sweep keeps the settings.
    settings = [dict(cell.setting) for cell in cells]
    return {"audit": cells[0].audit, "cells": list(runs), "settings": settings} | spec_description(whole)


def spec_description(spec: Spec | None) -> dict[str, Any]:
    """The specification as stored in `run.json`: the parts that affect results."""
    if spec is None:
        return {}
    fields = {"set": jsonable(spec.set), "sweep": jsonable(spec.sweep)}
    return {"asked": {"preset": spec.preset, **fields, "tolerate": spec.execution.get("tolerate", 0)}}


def reopen_run(journal: Journal) -> tuple[Cell, Plan]:
    """The cell and plan of a run from its folder. Raises EngramError if today's code plans something else."""
    about = journal.about()
    registered = audits.find(about["audit"])
    config = coerce(about.get("config", {}), registered.audit.config, "config")
    cell = Cell(about["audit"], config, about.get("preset"), about.get("setting") or {})
    plan = plan_of(cell)
    before = journal.tasks()
    if set(before) != set(plan.jobs):
        other = sorted({plan.task(key) for key in plan.jobs if key not in before})
        raise EngramError(
            f"run {journal.run} was planned by other versions of {', '.join(other) or 'its tasks'}; "
            f"its results stay as they are: start the audit anew with `engram run {about['audit']}`"
        )
    return cell, plan
