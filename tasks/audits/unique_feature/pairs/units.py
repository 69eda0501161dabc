"""The independent units of the table of canary scores, and what they are called.

A pair that was evaluated several times is still one pair of training runs, and a canary that was trained with several
seeds is still one canary, so their rows are averaged before anything is counted. Canaries that share a training seed
share its influence on every score, in their models and in their control models, so together they are one observation of
that seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.contract.grouping import group_rows
from tasks.contract.summaries import Estimate, Row, alone, row
from tasks.numerics.statistics import mean, paired_greater, proportion


@dataclass(frozen=True, eq=False)
class Units:
    """Rows of pairs and of independent units.

    `pairs` has one row per pair of training runs, with the p-values of the first evaluation. `rows` has one row per
    independent unit.
    """

    pairs: list[Row]
    rows: list[Row]
    model: str  # what n counts for scores of one kind of model
    pair: str  # what n counts for differences within a pair


def units(scores: Sequence[Row]) -> Units:
    pairs = average_rows(scores, "canary", "seed")
    canaries = average_rows(pairs, "canary")
    seeds = {pair["seed"] for pair in pairs}
    if len(seeds) < len(canaries) or 1 < len(canaries) < len(pairs) > len(seeds):  # canaries share seeds
        return Units(pairs, average_rows(pairs, "seed"), "training seed", "training seed")
    if len(canaries) == len(pairs):
        return Units(pairs, pairs, "training", "pair of trainings")
    return Units(pairs, canaries, "canary", "canary")


def share_seeds(trainings: Iterable[tuple[int, int]]) -> bool:
    """Return whether two different canaries were trained with the same seed.

    Each training is given by the row of its canary and its seed. Rates over canaries have an interval only if no seed
    is shared, because otherwise the influence of the seed is common to several canaries.
    """
    seed_owners = set(trainings)
    return len({seed for _, seed in seed_owners}) < len(seed_owners)


def call_rate(called_count: Sequence[bool], independent: bool) -> Estimate:
    """Return the share of training runs that are called. It has no interval if they are not an independent sample."""
    if independent:
        return proportion(sum(called_count), len(called_count))
    return alone(sum(called_count) / len(called_count), len(called_count))


def average_rows(rows: Sequence[Row], *by: str) -> list[Row]:
    """Average the numbers of each group, in order of appearance. p-values are taken from the first row."""
    result = []
    for group in group_rows(rows, *by).values():
        result.append(group[0] if len(group) == 1 else _one(group))
    return result


def first_trainings(rows: Iterable[Row]) -> list[Row]:
    """Return the first row of each canary, because further training runs are not a further sample of features."""
    return [group[0] for group in group_rows(rows, "canary").values()]


def _one(group: list[Row]) -> Row:
    first = min(group, key=lambda row: (row["evaluation"], row["seed"]))
    return first | {name: _mean(row[name] for row in group) for name in first if _averages(name, first[name])}


def _averages(name: str, value: object) -> bool:
    return isinstance(value, float) and not name.endswith("_p")


def _mean(values: Iterable[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None


def column(rows: Sequence[Row], name: str) -> list[float]:
    return [row[name] for row in rows if row[name] is not None]


def effect_row(metric: str, setting: Mapping[str, Any], pairs: Sequence[Row], name: str, unit: str) -> Row:
    """Return the row with the mean effect of the canary: its model minus the control model of the same seed.

    The t interval and the one-tailed p-value (greater than 0) are over the units.
    """
    p_value = paired_greater(column(pairs, name), column(pairs, f"twin_{name}")).p_value
    return row(metric, setting, mean(column(pairs, f"{name}_effect")), unit, 0.0, p_value)
