"""Measures are planned in their order, and their rows of the summary are those of the tables that there are."""

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
    raise AssertionError("nothing is computed here")


@task(version=1, name="measure.summary", gathers=True)
def summary(config: Config, inputs: Inputs) -> pa.Table:
    return summarise(MEASURES, inputs, config)


def of_sums(tables: Tables, about: Config) -> Iterator[Row]:
    for each in tables.rows(SUMS):
        yield row("sum", {"of": each["sum"]}, Estimate(float(each["sum"]), None, None, about.several), "table")


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


def planned(config: Config, jobs: tuple[Job, ...] = ()) -> Any:
    return roots(MEASURES, config, jobs, lambda read: Job(summary, config, read))


def test_the_summary_reads_the_tables_that_have_rows_in_it_in_their_order() -> None:
    unread = (Job(table, Config(7)),)
    plan = planned(Config(2), unread)
    assert list(plan) == ["sums", "unread", "names", "summary"]
    assert unread == plan["unread"]
    assert (*plan["sums"], plan["names"]) == plan["summary"].inputs


def test_a_measure_that_is_not_asked_for_is_no_table() -> None:
    plan = planned(Config(0))
    assert list(plan) == ["names", "summary"]
    assert (plan["names"],) == plan["summary"].inputs


def test_two_measures_of_one_name_cannot_both_be_planned() -> None:
    with pytest.raises(ValueError, match="two measures plan a table named names"):
        roots((MEASURES[2], MEASURES[2]), Config(), (), lambda read: Job(summary, Config(), read))


def test_missing_tables_leave_the_rows_of_the_others() -> None:
    sums = [pa.table([[number]], schema=SUMS) for number in (3, 4)]
    names = pa.table([["a", "b"]], schema=NAMES)
    whole = summarise(MEASURES, [sums[0], names, sums[1]], Config(2))
    assert whole.schema.equals(SUMMARY)
    assert values(whole) == [("sum", 3.0, 2), ("sum", 4.0, 2), ("names", 2.0, 2)]
    assert values(summarise(MEASURES, [sums[1]], Config(2))) == [("sum", 4.0, 2)]
    assert values(summarise(MEASURES, [names], Config(2))) == [("names", 2.0, 0)]
    assert SUMMARY.empty_table().equals(summarise(MEASURES, [], Config(2)))


def values(found: pa.Table) -> list[tuple[str, float, int]]:
    return [(each["metric"], each["estimate"], each["n"]) for each in found.to_pylist()]
