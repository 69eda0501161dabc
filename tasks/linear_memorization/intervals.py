"""Means over trainings as columns of a table."""

from __future__ import annotations

from numpy.typing import ArrayLike

from tasks.statistics import mean


def interval_columns(name: str, values: ArrayLike) -> dict[str, float | None]:
    """The columns of a mean, `name`, `name_low` and `name_high`: its 95 % t interval, None for a single value."""
    found = mean(values)
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
