"""What another training seed changes, and what another drawing of the random patches does. Figures 3a, 4, 5 and 6."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tasks.audits.unique_feature.units import average_rows
from tasks.statistics import mean, proportion
from tasks.summaries import Row, row

SCORES = {"M": "m", "M_w on the probe images": "m_w_probe"}


def seed_range_rows(scores: Sequence[Row]) -> Iterator[Row]:
    """The range of a canary's score over its training seeds, and how many canaries have it on both sides of 0."""
    by_canary = group_rows(average_rows(scores, ("canary", "seed")), ("canary",))
    if all(len(group) == 1 for group in by_canary):
        return
    for metric, name in SCORES.items():
        ranges = {prefix: [value_range(group, prefix + name) for group in by_canary] for prefix in ("", "twin_")}
        null = mean(ranges["twin_"]).value
        yield row(f"range of {metric} over seeds", {}, mean(ranges[""]), "canary", null)
        both = [changes_sign(group, name) for group in by_canary]
        twins = [changes_sign(group, f"twin_{name}") for group in by_canary]
        rate = proportion(sum(both), len(both))
        yield row(f"rate of {metric} on both sides of 0", {}, rate, "canary", proportion(sum(twins), len(twins)).value)


def evaluation_spread_rows(scores: Sequence[Row]) -> Iterator[Row]:
    """The standard deviation of a model's score over drawings of the random patches."""
    by_pair = [group for group in group_rows(scores, ("canary", "seed")) if len(group) > 1]
    for metric, name in SCORES.items():
        if by_pair:
            spreads = [float(np.std([score[name] for score in group], ddof=1)) for group in by_pair]
            twins = [float(np.std([score[f"twin_{name}"] for score in group], ddof=1)) for group in by_pair]
            yield row(f"sd of {metric} over evaluations", {}, mean(spreads), "training", mean(twins).value)


def group_rows(rows: Sequence[Row], by: tuple[str, ...]) -> list[list[Row]]:
    groups: dict[tuple[object, ...], list[Row]] = {}
    for score in rows:
        groups.setdefault(tuple(score[name] for name in by), []).append(score)
    return list(groups.values())


def value_range(group: Sequence[Row], name: str) -> float:
    values = [score[name] for score in group]
    return float(max(values) - min(values))


def changes_sign(group: Sequence[Row], name: str) -> bool:
    values = [score[name] for score in group]
    return bool(min(values) < 0 < max(values))
