"""A cell as its run's `run.json` tells of it, and back."""

from __future__ import annotations

from typing import Any

from orchestrator.errors import EngramError
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits
from orchestrator.spec.fields import coerce, plain
from orchestrator.spec.resolve import Cell
from orchestrator.store.provenance import commit, versions


def described(cell: Cell) -> dict[str, Any]:
    """What `run.json` says of a cell."""
    return {
        "audit": cell.audit,
        "preset": cell.preset,
        "setting": dict(cell.setting),
        "config": plain(cell.config),
        "versions": dict(versions()),
        "commit": commit(),
    }


def reopened(journal: Journal) -> tuple[Cell, Plan]:
    """The cell and plan of a run from its folder; EngramError where today's code plans something else."""
    about = journal.about()
    found = audits.find(about["audit"])
    config = coerce(about.get("config", {}), found.audit.config, "config")
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
