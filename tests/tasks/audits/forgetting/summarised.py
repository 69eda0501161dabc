"""The rows of a summary by metric and setting."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tasks.audits.forgetting.config import About
from tasks.audits.forgetting.measures import summary
from tasks.contract.schemas import SUMMARY

Row = dict[str, Any]


def rows(*tables: pa.Table, config: About = About(())) -> dict[tuple[str, str], Row]:  # noqa: B008
    result = summary(config, tables)
    assert result.schema == SUMMARY
    all_rows = result.to_pylist()
    rows_by_name = {(row["metric"], row["setting"]): row for row in all_rows}
    assert len(rows_by_name) == len(all_rows)  # metric and setting identify a row
    return rows_by_name


def setting(**values: Any) -> str:
    return json.dumps(values, sort_keys=True)


def numbers(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("estimate", "low", "high", "n", "null", "published"))
