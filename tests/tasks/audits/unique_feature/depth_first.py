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
    """Compute every root's rows. An `absent` job has no table, and neither has a job that needs it, unless it
    gathers.

    `done` holds, by key, the tables that need not be computed again.
    """
    done = {} if done is None else done
    keys = {id(job): key for key, job in Plan.from_roots(roots).jobs.items()}
    absent_keys: set[str] = set()

    def key(job: Job) -> str:
        if id(job) not in keys:
            keys[id(job)] = key_of(job, [key(source) for source in job.inputs])
        return keys[id(job)]

    def table(job: Job) -> pa.Table | None:
        own_key = key(job)
        if own_key not in done and own_key not in absent_keys:
            inputs = [table(job_below) for job_below in job.inputs]
            available = [input_table for input_table in inputs if input_table is not None]
            is_complete = len(available) == len(inputs) or marks(job.function).gathers
            if absent(job) or not is_complete:
                absent_keys.add(own_key)
            else:
                done[own_key] = job.function(job.config, available)
        return done.get(own_key)

    collected = {}
    for name, root in roots.items():
        parts = [table(job) for job in (root if isinstance(root, tuple) else (root,))]
        collected[name] = pa.concat_tables([part for part in parts if part is not None])
    return collected
