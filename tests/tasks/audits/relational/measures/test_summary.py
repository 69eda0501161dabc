"""The summary of all tables, or of some."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest

from tasks.audits.relational.config import About
from tasks.audits.relational.measures import MEASURES, summary
from tasks.audits.relational.measures.evasions import COMMONEST, EVASIONS
from tasks.audits.relational.measures.repeats import REPEATS
from tasks.contract.job import Inputs
from tasks.contract.schemas import SUMMARY
from tasks.linear_memorization.gradient_flow import Flow, Recovery, curves, recovery
from tasks.linear_memorization.private import private
from tasks.linear_memorization.private_config import Private
from tests.tasks.audits.relational.made_up import NUMERIC, counted_scores, memorization_of

SUMMARISED = [measure.name for measure in MEASURES if measure.rows is not None]


@cache
def tables() -> dict[str, pa.Table]:
    """Return a table of each measure in the summary."""
    return {
        "memorization": memorization_of(counted_scores((8, 20), (2, 20))),
        "evasions": pa.table([["train"], [10], [1], [2], [0.1], [0.2], [3], [0.04], [0.9]], EVASIONS),
        "commonest_answers": pa.table([[0], ["validation"], [10], [0.3]], COMMONEST),  # of the part without evasions
        "repeats": pa.Table.from_pylist([{"repeats": 10, "differing": 1, "key": "ab" * 32}], REPEATS),
        "linear_curves": curves(Flow(5, 9, trainings=3, per_decade=1), []),
        "linear_recovery": recovery(Recovery(5, 9, trainings=3), []),
        "linear_private": private(Private(epsilons=(1.0,), trainings=5), []),
    }


def summary_rows(inputs: Inputs, about: About = NUMERIC) -> list[dict[str, object]]:
    table = summary(about, inputs)
    assert table.schema == SUMMARY
    rows = table.to_pylist()
    assert len(rows) == len({(row["metric"], row["setting"]) for row in rows})  # metric and setting identify a row
    return rows


def test_tables_of_the_summary_have_rows() -> None:
    assert list(tables()) == SUMMARISED
    assert all(summary_rows([table]) for table in tables().values())


def test_decisive_row_comes_first() -> None:
    all_rows = summary_rows(list(tables().values()))
    assert all_rows[0]["metric"] == "relational m"
    assert all_rows[0]["setting"] == '{"at": "end", "golds": "one", "questions": "numeric", "score": "exact match"}'
    assert all_rows == summary_rows(list(reversed(tables().values())))


@pytest.mark.parametrize("left_out", SUMMARISED)
def test_missing_table_keeps_other_rows(left_out: str) -> None:
    remaining_tables = [table for name, table in tables().items() if name != left_out]
    assert [row for table in remaining_tables for row in summary_rows([table])] == summary_rows(remaining_tables)


def test_no_table_gives_no_row() -> None:
    assert summary_rows([]) == []
    assert summary_rows([tables()["memorization"].slice(0, 0)]) == []
