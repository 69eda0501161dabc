"""A measure: one question of an audit, the table that answers it, and what the summary says of that table.

An audit is its trainings and its measures. Each measure stands in a file of its own, with its question, its formula
with the source, its task, and its rows of the summary; what several of them need of the trainings is planned once.
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

# By name, such as `validation_loss`: its value after each epoch, as (epoch, value).
LearningCurves = Mapping[str, Sequence[tuple[int, float]]]


class Tables:
    """The tables that a summary reads, found by their schemas. Any of them may be missing.

    Where jobs failed and that is tolerated, a measure has fewer tables than were planned, or none.
    """

    def __init__(self, tables: Inputs) -> None:
        self._tables = tables

    def select(self, schema: pa.Schema) -> list[pa.Table]:
        """The tables of this schema, in the order in which they were planned; none where there are none."""
        return [table for table in self._tables if table.schema.equals(schema)]

    def one(self, schema: pa.Schema) -> pa.Table | None:
        """The table of a measure that has a single one; None where it is missing."""
        return next(iter(self.select(schema)), None)

    def rows(self, schema: pa.Schema) -> list[Row]:
        """The rows of all tables of this schema, one after another."""
        return [row for table in self.select(schema) for row in table.to_pylist()]


@dataclass(frozen=True)
class Measure:
    """One question of an audit, answered by one table.

    `plan(config, trainings)` gives the job whose table it is, or several, whose rows come one after another; none where
    the config does not ask for it. `schema` is that of every such table. `rows(tables, about)` yields the rows of the
    summary, nothing where the tables that they are made of are missing; `about` is the summary's config. A measure
    without `rows` is not read by the summary. `learning_curves(table)` gives those that a table tells of, if any.
    """

    name: str
    schema: pa.Schema
    plan: Callable[[Any, Any], Job | Sequence[Job]]
    rows: Callable[[Tables, Any], Iterator[Row]] | None = None
    learning_curves: Callable[[pa.Table], LearningCurves] | None = None


def roots(measures: Iterable[Measure], config: Any, trainings: Any, summary: Callable[[tuple[Job, ...]], Job]) -> Roots:
    """The tables that a config asks for by the names of their measures, and the `summary` of those that it reads.

    `summary` makes the job of the summary from what it reads. ValueError where two measures plan one name.
    """
    planned: dict[str, Job | tuple[Job, ...]] = {}
    read: list[Job] = []
    for measure in measures:
        asked = measure.plan(config, trainings)
        jobs = (asked,) if isinstance(asked, Job) else tuple(asked)
        if not jobs:
            continue
        if measure.name in planned:
            raise ValueError(f"two measures plan a table named {measure.name}")
        planned[measure.name] = asked if isinstance(asked, Job) else jobs
        read.extend(jobs if measure.rows is not None else ())
    return {**planned, "summary": summary(tuple(read))}


def summarise(measures: Iterable[Measure], inputs: Inputs, about: Any) -> pa.Table:
    """The rows of SUMMARY that the measures make of these tables, in the order of the measures; at the end copies'."""
    tables = Tables(inputs)
    rows = [row for measure in measures if measure.rows is not None for row in measure.rows(tables, about)]
    rows.extend(copy_rows(about))
    return pa.Table.from_pylist(rows, SUMMARY)
