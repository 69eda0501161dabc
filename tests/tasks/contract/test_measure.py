"""Measures are planned in order, and each available table adds its rows to the summary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables, roots, summarise
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, Row, row

SUMS = pa.schema([("sum", pa.int64())])
NAMES = pa.schema([("name", pa.string())])


@dataclass(frozen=True)
class Config:
    several: int = 1


@task(version=1, name="measure.table")
def table(config: Config, inputs: Inputs) -> pa.Table:
    raise AssertionError("this table must not be computed")


@task(version=1, name="measure.summary", gathers=True)
def summary(config: Config, inputs: Inputs) -> pa.Table:
    return summarise(MEASURES, inputs, config)


def of_sums(tables: Tables, about: Config) -> Iterator[Row]:
    for sum_row in tables.rows(SUMS):
        yield row("sum", {"of": sum_row["sum"]}, Estimate(float(sum_row["sum"]), None, None, about.several), "table")


def of_names(tables: Tables, about: Any) -> Iterator[Row]:
    if (names := tables.one(NAMES)) is not None:
        yield row("names", {}, Estimate(float(len(names)), None, None, len(tables.select(SUMS))), "name")


MEASURES = (
    Measure(
        "sums", SUMS, lambda config, jobs: [Job(table, Config(number)) for number in range(config.several)], of_sums
    ),
    Measure("unread", SUMS, lambda config, jobs: jobs),
    Measure("names", NAMES, lambda config, jobs: Job(table, config), of_names),
)


def plan_of(config: Config, jobs: tuple[Job, ...] = ()) -> Any:
    return roots(MEASURES, config, jobs, lambda inputs: Job(summary, config, inputs))


def test_summary_reads_tables_in_order_of_measures() -> None:
    unread = (Job(table, Config(7)),)
    plan = plan_of(Config(2), unread)
    assert list(plan) == ["sums", "unread", "names", "summary"]
    assert unread == plan["unread"]
    assert (*plan["sums"], plan["names"]) == plan["summary"].inputs


def test_measure_without_jobs_has_no_table() -> None:
    plan = plan_of(Config(0))
    assert list(plan) == ["names", "summary"]
    assert (plan["names"],) == plan["summary"].inputs


def test_measures_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two measures plan a table named names"):
        roots((MEASURES[2], MEASURES[2]), Config(), (), lambda inputs: Job(summary, Config(), inputs))


def test_missing_tables_leave_other_rows() -> None:
    sums = [pa.table([[number]], schema=SUMS) for number in (3, 4)]
    names = pa.table([["a", "b"]], schema=NAMES)
    full_summary = summarise(MEASURES, [sums[0], names, sums[1]], Config(2))
    assert full_summary.schema.equals(SUMMARY)
    assert values(full_summary) == [("sum", 3.0, 2), ("sum", 4.0, 2), ("names", 2.0, 2)]
    assert values(summarise(MEASURES, [sums[1]], Config(2))) == [("sum", 4.0, 2)]
    assert values(summarise(MEASURES, [names], Config(2))) == [("names", 2.0, 0)]
    assert SUMMARY.empty_table().equals(summarise(MEASURES, [], Config(2)))


def values(summary: pa.Table) -> list[tuple[str, float, int]]:
    result = []
    for summary_row in summary.to_pylist():
        result.append((summary_row["metric"], summary_row["estimate"], summary_row["n"]))
    return result
