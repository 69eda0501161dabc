"""Compute a plan's tables in this process: inputs first, equal jobs once."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from orchestrator.planning.identity import key_of
from orchestrator.planning.plan import Plan
from tasks.contract.job import Job, Roots, marks


def tables(
    roots: Roots, absent: Callable[[Job], bool] = lambda job: False, done: dict[str, pa.Table] | None = None
) -> dict[str, pa.Table]:
    """Every root's rows. An `absent` job has no table; neither has what needs it, save what gathers.

    `done` holds, by their keys, the tables that need not be computed again.
    """
    done = {} if done is None else done
    keys = {id(job): key for key, job in Plan.from_roots(roots).jobs.items()}
    lost: set[str] = set()

    def key(job: Job) -> str:
        if id(job) not in keys:
            keys[id(job)] = key_of(job, [key(below) for below in job.inputs])
        return keys[id(job)]

    def table(job: Job) -> pa.Table | None:
        mine = key(job)
        if mine not in done and mine not in lost:
            inputs = [table(job_below) for job_below in job.inputs]
            there = [found for found in inputs if found is not None]
            whole = len(there) == len(inputs) or marks(job.function).gathers
            if absent(job) or not whole:
                lost.add(mine)
            else:
                done[mine] = job.function(job.config, there)
        return done.get(mine)

    collected = {}
    for name, root in roots.items():
        parts = [table(job) for job in (root if isinstance(root, tuple) else (root,))]
        collected[name] = pa.concat_tables([part for part in parts if part is not None])
    return collected
