"""The plans of an audit's presets, for tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from orchestrator.planning.plan import Plan
from orchestrator.spec import audits
from orchestrator.spec.resolve import Cell, pin_cells
from tasks.contract.job import Roots, marks

DIGESTS: dict[str, str] = {}  # of the files that these tests have read


def pinned(audit: str, configs: Iterable[Any]) -> list[Any]:
    """The configs, with data and models pinned."""
    result = []
    for cell in pin_cells([Cell(audit, config) for config in configs], DIGESTS):
        result.append(cell.config)
    return result


def planned(audit: str, configs: Iterable[Any]) -> list[Roots]:
    """The roots of each config's tables."""
    return [audits.find(audit).audit.plan(config) for config in pinned(audit, configs)]


def union(roots: Iterable[Roots]) -> Plan:
    """One plan of all given roots, with each job once."""
    return Plan.union(Plan.from_roots(table_roots) for table_roots in roots)


def preset_plan(audit: str, *presets: str) -> Plan:
    """One plan of all cells of these presets."""
    audit_definition = audits.find(audit).audit
    return union(planned(audit, [config for preset in presets for config in audit_definition.cells(preset)]))


def calls(roots: Iterable[Roots]) -> Counter[str]:
    """The number of jobs of each task in the given plans. Equal jobs count once."""
    return Counter(marks(job.function).name for job in union(roots).jobs.values())
