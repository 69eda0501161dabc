"""A plan's tables, computed here: inputs first, each job once."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tasks.job import Job, Roots, marks


def tables(roots: Roots, absent: Callable[[Job], bool] = lambda job: False) -> dict[str, pa.Table]:
    """Every root's rows. An `absent` job has no table; neither has what needs it, save what gathers."""
    done: dict[Job, pa.Table | None] = {}

    def table(job: Job) -> pa.Table | None:
        if job not in done:
            inputs = [table(job_below) for job_below in job.inputs]
            there = [found for found in inputs if found is not None]
            whole = len(there) == len(inputs) or marks(job.function).gathers
            done[job] = job.function(job.config, there) if whole and not absent(job) else None
        return done[job]

    collected = {}
    for name, root in roots.items():
        parts = [table(job) for job in (root if isinstance(root, tuple) else (root,))]
        collected[name] = pa.concat_tables([part for part in parts if part is not None])
    return collected
