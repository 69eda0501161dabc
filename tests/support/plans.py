"""The plans of an audit's presets, as the tests of these look at them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from orchestrator.planning.plan import Plan
from orchestrator.spec import audits
from orchestrator.spec.resolve import Cell, pin_cells
from tasks.contract.job import Roots, marks

DIGESTS: dict[str, str] = {}  # of the files that any of these tests has read


def pinned(audit: str, configs: Iterable[Any]) -> list[Any]:
    """The configs with their data and models pinned."""
    return [cell.config for cell in pin_cells([Cell(audit, config) for config in configs], DIGESTS)]


def planned(audit: str, configs: Iterable[Any]) -> list[Roots]:
    """The roots of each config's tables."""
    return [audits.find(audit).audit.plan(config) for config in pinned(audit, configs)]


def union(roots: Iterable[Roots]) -> Plan:
    """One plan of all of these, each job once."""
    return Plan.union(Plan.from_roots(each) for each in roots)


def preset_plan(audit: str, *presets: str) -> Plan:
    """One plan of all cells of these presets."""
    found = audits.find(audit).audit
    return union(planned(audit, [config for preset in presets for config in found.cells(preset)]))


def calls(roots: Iterable[Roots]) -> Counter[str]:
    """Jobs of each task in all of these plans, equal ones once."""
    return Counter(marks(job.function).name for job in union(roots).jobs.values())
