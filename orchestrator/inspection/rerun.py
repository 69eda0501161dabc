"""One job computed again in this process, for a debugger or a profiler. Nothing is stored."""

from __future__ import annotations

import os
import time
from typing import Any

from orchestrator.errors import Absent, Damaged, EngramError
from orchestrator.inspection.explain import planned_job
from orchestrator.store import Store
from tasks.compute_context import STRATEGIES, ComputeContext, StrategyName, use_context


def rerun(store: Store, key: str) -> dict[str, Any]:
    """Compute a planned key's table and compare it with the stored one. Exceptions of the task are passed on.

    Models are trained with the strategy named in the stored result's record.

    `same`: whether they are equal bit for bit, None if none is stored; `differs`: the columns that are not equal.
    Raises EngramError if an input is not stored.
    """
    # One thread, as in a worker: the order of a sum affects its last bits.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    job, plan = planned_job(store, key)
    try:
        inputs = [store.read(below) for below in plan.inputs[key]]
    except (Absent, Damaged) as error:
        raise EngramError(f"an input of {key[:12]} is not there: {error}; resume its run first") from None
    clock = time.perf_counter()
    with use_context(ComputeContext(_way(store, key))):
        table = job.function(job.config, inputs)
    seconds = time.perf_counter() - clock
    try:
        stored = store.read(key)
    except (Absent, Damaged):
        stored = None
    differs = [] if stored is None else differences(table, stored)
    same = None if stored is None else not differs
    return {
        "key": key,
        "task": plan.task(key),
        "seconds": seconds,
        "rows": len(table),
        "same": same,
        "differs": differs,
    }


def _way(store: Store, key: str) -> StrategyName:
    """The strategy by which a stored result was computed; "auto" if its record names none."""
    try:
        way: StrategyName = store.record(key, check=False).get("way", "auto")
    except (Absent, Damaged):
        return "auto"
    return way if way in STRATEGIES else "auto"


def differences(table: Any, stored: Any) -> list[dict[str, Any]]:
    """The columns in which two tables differ, with the number of rows and, for numbers, the largest difference."""
    from orchestrator.store.content import content

    if content(table) == content(stored):
        return []
    if table.schema != stored.schema:
        return [{"column": None, "problem": f"columns are {table.schema.names}, were {stored.schema.names}"}]
    if len(table) != len(stored):
        return [{"column": None, "problem": f"{len(table)} rows, were {len(stored)}"}]
    columns = []
    for name in table.schema.names:
        if content(table.select([name])) != content(stored.select([name])):
            pairs = list(zip(table[name].to_pylist(), stored[name].to_pylist(), strict=True))
            numbers = [
                pair for pair in pairs if all(isinstance(value, int | float) and value == value for value in pair)
            ]
            apart = [abs(a - b) for a, b in numbers]
            rows = sum(a != b and not (a != a and b != b) for a, b in pairs)
            columns.append({"column": name, "rows": rows, "largest": max(apart, default=None)})
    return columns or [{"column": None, "problem": "the schemas' metadata differ"}]
