"""One row of the summary, and the columns that rows are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.statistics import Estimate, mean, paired_greater

Row = dict[str, Any]
Values = list[float]


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
        "setting": json.dumps(setting, sort_keys=True),
        "estimate": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "n": estimate.n,
        "unit": unit,
        "null": null,
        "p_value": p_value,
        "published": published,
    }


def alone(value: float | None, n: int = 1) -> Estimate:
    """A value without an interval, of n units."""
    return Estimate(value, None, None, n if value is not None else 0)


def column(pairs: Sequence[Row], name: str) -> Values:
    return [pair[name] for pair in pairs if pair[name] is not None]


def effect(metric: str, setting: Mapping[str, Any], pairs: Sequence[Row], name: str, unit: str) -> Row:
    """The mean difference that the canary makes: its model minus the twin of the same seed.

    The t interval and the one-tailed p-value (greater than 0) are over the units.
    """
    p_value = paired_greater(column(pairs, name), column(pairs, f"twin_{name}")).p_value
    return row(metric, setting, mean(column(pairs, f"{name}_effect")), unit, 0.0, p_value)
