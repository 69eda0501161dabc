"""Trainings that several processes cannot compute together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from orchestrator.planning.plan import Plan
from orchestrator.quantities import format_count
from orchestrator.spec.options import Execution
from tasks.contract.job import marks, may_spread


def describe_undivided(plan: Plan, keys: Iterable[str], execution: Execution) -> Iterator[str]:
    """Yield a line about those of the jobs that train networks in one process although more are requested."""
    if execution.gpus_per_job == execution.processes_per_job == 1:
        return
    counts: Counter[str] = Counter()
    for key in keys:
        job = plan.jobs[key]
        if marks(job.function).trains and not may_spread(job.function, job.config):
            counts[plan.task(key)] += 1
    for task, count in counts.items():
        yield f"{task}: {format_count(count, 'training')} of one process each, since its steps cannot be divided"
