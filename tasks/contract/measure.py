"""A measure: one question of an audit, the table that answers it, and the summary rows computed from that table.

An audit consists of training runs and measures. Each measure has its own file with its question, its formula and
source, its task and its summary rows. Training runs that several measures share are planned once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tasks.contract.copy_counts import copy_rows
from tasks.contract.job import Inputs, Job, Roots
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Row

# Curves by name, such as `validation_loss`. A curve contains the value after each epoch, as (epoch, value).
LearningCurves = Mapping[str, Sequence[tuple[int, float]]]


class Tables:
    """The tables that a summary reads, selected by schema.

    If a run tolerates failed jobs, a measure may have fewer tables than planned, or none.
    """

    def __init__(self, tables: Inputs) -> None:
        self._tables = tables

    def select(self, schema: pa.Schema) -> list[pa.Table]:
        """Return the tables with this schema, in plan order."""
        return [table for table in self._tables if table.schema.equals(schema)]

    def one(self, schema: pa.Schema) -> pa.Table | None:
        """Return the first table with this schema, or None if there is none."""
        return next(iter(self.select(schema)), None)

    def rows(self, schema: pa.Schema) -> list[Row]:
        """Return the rows of all tables with this schema."""
        return [row for table in self.select(schema) for row in table.to_pylist()]


@dataclass(frozen=True)
class Measure:
    """One question of an audit, answered by one table.

    plan(config, trainings): Returns the job that computes the table, or several jobs whose tables are concatenated.
        Empty if the config does not request the measure.
    schema: The schema of each table.
    rows(tables, about): Yields the summary rows, or nothing if a required table is missing. `about` is the config of
        the summary. The summary ignores a measure without `rows`.
    learning_curves(table): Returns the learning curves in a table, if any.
    """

    name: str
    schema: pa.Schema
    plan: Callable[[Any, Any], Job | Sequence[Job]]
    rows: Callable[[Tables, Any], Iterator[Row]] | None = None
    learning_curves: Callable[[pa.Table], LearningCurves] | None = None


def roots(measures: Iterable[Measure], config: Any, trainings: Any, summary: Callable[[tuple[Job, ...]], Job]) -> Roots:
    """Plan the tables that a config requests, keyed by measure name, and the summary.

    `summary(jobs)` returns the summary job, which reads these jobs. Raises ValueError if two measures have the same
    name.
    """
    tables: dict[str, Job | tuple[Job, ...]] = {}
    inputs: list[Job] = []
    for measure in measures:
        jobs_or_job = measure.plan(config, trainings)
        jobs = (jobs_or_job,) if isinstance(jobs_or_job, Job) else tuple(jobs_or_job)
        if not jobs:
            continue
        if measure.name in tables:
            raise ValueError(f"two measures plan a table named {measure.name}")
        tables[measure.name] = jobs_or_job if isinstance(jobs_or_job, Job) else jobs
        inputs.extend(jobs if measure.rows is not None else ())
    return {**tables, "summary": summary(tuple(inputs))}


def summarise(measures: Iterable[Measure], inputs: Inputs, about: Any) -> pa.Table:
    """Compute the SUMMARY rows, in the order of the measures. The row about exact copies comes last."""
    tables = Tables(inputs)
    rows = [row for measure in measures if measure.rows is not None for row in measure.rows(tables, about)]
    rows.extend(copy_rows(about))
    return pa.Table.from_pylist(rows, SUMMARY)
