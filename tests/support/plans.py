"""The plans of an audit's presets, for tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from orchestrator.planning.plan import Plan
from orchestrator.spec import audits
from orchestrator.spec.resolve import Cell, pin_cells
from tasks.contract.job import Job, Roots, marks

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


def compute_roots(roots: Roots) -> dict[str, pa.Table]:
    """The table of each root, computed in this process."""
    done: dict[int, pa.Table] = {}
    tables = {}
    for name, jobs in roots.items():
        if isinstance(jobs, Job):
            tables[name] = compute(jobs, done)
        else:
            tables[name] = pa.concat_tables([compute(job, done) for job in jobs])
    return tables


def compute(job: Job, done: dict[int, pa.Table]) -> pa.Table:
    """The table of a job; computes the jobs that it depends on first."""
    if id(job) not in done:
        if job.after is not None:
            compute(job.after, done)
        done[id(job)] = job.function(job.config, [compute(source, done) for source in job.inputs])
    return done[id(job)]
