"""Rows of a summary in a form that tests can state in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from tasks.contract.summaries import Row

Named = dict[tuple[str, str], list[Any]]
NUMBERS = ("estimate", "low", "high", "n", "unit", "null", "p_value", "published")


def by_name(rows: Iterable[Row]) -> Named:
    """The numbers of each row, in the order of NUMBERS, by its metric and setting; no two rows share these."""
    numbers_by_name: Named = {}
    for row in rows:
        name = row["metric"], row["setting"]
        assert name not in numbers_by_name
        numbers_by_name[name] = [row[number] for number in NUMBERS]
    return numbers_by_name


def with_t(values: Sequence[float]) -> list[Any]:
    """The mean, its 95 % t interval by scipy, and n."""
    centre = float(np.mean(values))
    low, high = stats.t.interval(0.95, len(values) - 1, centre, stats.sem(values))
    return [centre, float(low), float(high), len(values)]


def with_wilson(successes: int, n: int) -> list[Any]:
    """The share, its 95 % Wilson interval by the textbook's formula, and n."""
    z = float(stats.norm.ppf(0.975))
    p = successes / n
    centre = p + z**2 / (2 * n)
    half = z * (p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5
    return [p, (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n), n]
