"""A row of the table that every audit ends in: one number with its interval, its sample and what is known of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
Name = tuple[str, str]  # the metric of a row and its setting, as JSON
Rows = Mapping[Name, Row]
# Metrics that are probabilities or shares, by their first or last words.
PROBABILITY = re.compile(
    r"(P_\w|accuracy|rate|share|power)\b(?!.*\b(gain|effect)\b)|.*\b(accuracy|rate|share)$|highly memorised within\b"
)
ENDS = ("", "_low", "_high")  # of the columns' names: of an estimate, and of either limit of its interval
LEAST_P = 1e-6  # below this nobody reads a p-value's digits, and no approximation in it holds


@dataclass(frozen=True)
class Estimate:
    """A value with its two-sided interval over `n` independent units; None where undefined."""

    value: float | None
    low: float | None
    high: float | None
    n: int


def row(
    metric: str,
    setting: Mapping[str, Any],
    estimate: Estimate,
    unit: str,
    null: float | None = None,
    p_value: float | None = None,
    published: float | None = None,
) -> Row:
    return {
        "metric": metric,
        "setting": format_setting(setting),
        "estimate": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "n": estimate.n,
        "unit": unit,
        "null": null,
        "p_value": p_value,
        "published": published,
    }


def interval_fields(*names: str) -> list[tuple[str, pa.DataType]]:
    """The columns of estimates with their intervals, for a schema: NAME, NAME_low and NAME_high of each."""
    return [(f"{name}{end}", pa.float64()) for name in names for end in ENDS]


def interval_columns(name: str, estimate: Estimate) -> dict[str, float | None]:
    """An estimate and its interval in the columns of this name."""
    return dict(zip((f"{name}{end}" for end in ENDS), (estimate.value, estimate.low, estimate.high), strict=True))


def column_estimate(row: Row, name: str, n: int) -> Estimate:
    """The estimate, of n units, in the columns of this name."""
    value, low, high = (row[f"{name}{end}"] for end in ENDS)
    return Estimate(value, low, high, n)


def format_setting(setting: Mapping[str, Any]) -> str:
    """A setting as rows of a summary hold it."""
    return json.dumps(setting, sort_keys=True)


def read_setting(row: Mapping[str, Any]) -> dict[str, Any]:
    """The setting of a row by its fields."""
    setting: dict[str, Any] = json.loads(row["setting"])
    return setting


def row_name(metric: str, **setting: Any) -> Name:
    """The name by which `index_rows` has the row of this metric and setting."""
    return metric, format_setting(setting)


def name_of(row: Mapping[str, Any]) -> Name:
    """The name by which `index_rows` has this row."""
    return row["metric"], row["setting"]


def index_rows(summary: pa.Table) -> dict[Name, Row]:
    """The rows of a summary by metric and setting, the first of each."""
    rows: dict[Name, Row] = {}
    for each in summary.to_pylist():
        rows.setdefault(name_of(each), each)
    return rows


def select_rows(rows: Rows, metric: str) -> list[Row]:
    """The rows of this metric, in the order of the summary."""
    return [row for (each, _), row in rows.items() if each == metric]


def first_row(rows: Rows, metric: str) -> Row | None:
    """The first row of this metric, whose setting follows from the run; None without one."""
    return next(iter(select_rows(rows, metric)), None)


def numerator(share: Row) -> int:
    """Of the `n` units of a row that is a share, how many it stands for."""
    count: int = round(share["estimate"] * share["n"])
    return count


def alone(value: float | None, n: int = 1) -> Estimate:
    """A value without an interval, of n units."""
    return Estimate(value, None, None, n if value is not None else 0)


def p_in_words(p: float) -> str:
    """A p-value in a sentence: `p = 0.015`, `p < 1e-6` below that."""
    return f"p {p_digits(p)}" if p < LEAST_P else f"p = {p_digits(p)}"


def p_digits(p: float) -> str:
    """A p-value with two significant digits, `< 1e-6` below that."""
    return "< 1e-6" if p < LEAST_P else f"{p:.2g}".replace("e-0", "e-")


def blank_weak_interval(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row, without an interval that its sample cannot bear: of two, or of a probability one that leaves [0, 1]."""
    low, high = row.get("low"), row.get("high")
    if low is None or high is None:
        return row
    outside = bool(PROBABILITY.match(row.get("metric") or "")) and (low < 0 or high > 1)
    return {**row, "low": None, "high": None} if row.get("n") == 2 or outside else row
