"""Rows of an audit's summary. Each row holds one number with its interval and sample size."""

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
# Matches metrics that are probabilities or shares, by their first or last words.
PROBABILITY = re.compile(
    r"(P_\w|accuracy|rate|share|power)\b(?!.*\b(gain|effect)\b)|.*\b(accuracy|rate|share)$|highly memorised within\b"
)
ENDS = ("", "_low", "_high")  # column suffixes of the estimate and of the limits of its interval
LEAST_P = 1e-6  # smaller p-values are not printed, because their approximations are not accurate


@dataclass(frozen=True)
class Estimate:
    """A value with its two-sided interval over `n` independent units. Values are None if undefined."""

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
    """Return the schema columns of estimates and their intervals: NAME, NAME_low and NAME_high."""
    return [(f"{name}{end}", pa.float64()) for name in names for end in ENDS]


def interval_columns(name: str, estimate: Estimate) -> dict[str, float | None]:
    """Return an estimate and its interval as columns with this name."""
    return dict(zip((f"{name}{end}" for end in ENDS), (estimate.value, estimate.low, estimate.high), strict=True))


def column_estimate(row: Row, name: str, n: int) -> Estimate:
    """Return the estimate, over n units, from the columns with this name."""
    value, low, high = (row[f"{name}{end}"] for end in ENDS)
    return Estimate(value, low, high, n)


def format_setting(setting: Mapping[str, Any]) -> str:
    """Format a setting as JSON, for a summary row."""
    return json.dumps(setting, sort_keys=True)


def read_setting(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setting of a row."""
    setting: dict[str, Any] = json.loads(row["setting"])
    return setting


def row_name(metric: str, **setting: Any) -> Name:
    """Return the key in `index_rows` of the row with this metric and setting."""
    return metric, format_setting(setting)


def name_of(row: Mapping[str, Any]) -> Name:
    """Return the key of this row in `index_rows`."""
    return row["metric"], row["setting"]


def names_of(*rows: Mapping[str, Any] | None) -> tuple[Name, ...]:
    """Return the (metric, setting) keys of the rows that are not None."""
    return tuple(name_of(row) for row in rows if row is not None)


def index_rows(summary: pa.Table) -> dict[Name, Row]:
    """Return the rows of a summary, keyed by metric and setting. If several rows have the same key, keep the first."""
    rows: dict[Name, Row] = {}
    for row in summary.to_pylist():
        rows.setdefault(name_of(row), row)
    return rows


def select_rows(rows: Rows, metric: str) -> list[Row]:
    """Return the rows with this metric, in summary order."""
    return [row for (row_metric, _), row in rows.items() if row_metric == metric]


def first_row(rows: Rows, metric: str) -> Row | None:
    """Return the first row with this metric, or None if there is none. Use it for metrics with one setting per run."""
    return next(iter(select_rows(rows, metric)), None)


def numerator(share: Row) -> int:
    """Return how many of the row's `n` units its share counts."""
    count: int = round(share["estimate"] * share["n"])
    return count


def alone(value: float | None, n: int = 1) -> Estimate:
    """Return a value over n units without an interval."""
    return Estimate(value, None, None, n if value is not None else 0)


def area_with_interval(area: Row) -> str:
    """Format an area under a curve with its 95 % interval for a sentence: `0.652 [0.607, 0.694]`."""
    return f"{area['estimate']:.3f} [{area['low']:.3f}, {area['high']:.3f}]"


def p_in_words(p: float) -> str:
    """Format a p-value for a sentence: `p = 0.015`, or `p < 1e-6` for smaller values."""
    return f"p {p_digits(p)}" if p < LEAST_P else f"p = {p_digits(p)}"


def p_digits(p: float) -> str:
    """Format a p-value with two significant digits, or as `< 1e-6` if it is smaller."""
    return "< 1e-6" if p < LEAST_P else f"{p:.2g}".replace("e-0", "e-")


def blank_weak_interval(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Remove an unreliable interval: one from a sample of two, or one of a probability that extends beyond [0, 1]."""
    low, high = row.get("low"), row.get("high")
    if low is None or high is None:
        return row
    outside = bool(PROBABILITY.match(row.get("metric") or "")) and (low < 0 or high > 1)
    if row.get("n") == 2 or outside:
        return {**row, "low": None, "high": None}
    return row
