"""The ratio of distances to neighbours as a function of the score: in bins of the score, and for both groups.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 4.4, figures 5, 12
and 13. Their released histograms of the groups split at a score of 0.95 nats; here it is the score's 95 % quantile,
as their text says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.density.bins import bin_of
from tasks.audits.density.config import Density
from tasks.audits.density.highly_memorised import Array, Mask, highly_memorised_mask, statistic_with_interval
from tasks.audits.density.measures import nearest_neighbours, scores
from tasks.audits.density.measures.nearest_neighbours import NEIGHBOURS, pairs
from tasks.audits.density.measures.scores import SCORES
from tasks.audits.density.trainings import Trainings
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.ranges import above_zero
from tasks.summaries import Row, row

RATIOS = pa.schema(
    [
        ("group", pa.string()),  # bin, memorised or regular
        ("low", pa.float64()),  # of a bin [low, high) of M, in nats; null for the groups
        ("high", pa.float64()),
        ("mean", pa.float64()),  # of rho
        ("standard_error", pa.float64()),  # s / sqrt(n); null where n is 1
        ("n", pa.int64()),  # observations
        ("quantiles", pa.list_(pa.float64())),  # 0, 1 ... 100 % of the groups' rho, 101 of them; null for bins
    ]
)


@dataclass(frozen=True)
class Ratios:
    """Bins of M of a width in nats. The paper's: 50 for CelebA, 2 for MNIST."""

    width: float = 2.0

    def __post_init__(self) -> None:
        above_zero(self, "width")


@task(version=3, name="density.ratios")
def ratios(config: Ratios, inputs: Inputs) -> pa.Table:
    """The mean of rho in every bin of M that is not empty, and its distribution in both groups (RATIOS).

    The inputs are SCORES and NEIGHBOURS. Edges are whole multiples of the width. Observations without a score or
    without rho are left out; those with an infinite score are in a group and in no bin.
    """
    observations, rho, high = pairs(inputs[0], inputs[1])
    return pa.Table.from_pylist([*bin_rows(observations.m, rho, config.width), *group_rows(rho, high)], RATIOS)


def bin_rows(m: Array, rho: Array, width: float) -> Iterator[dict[str, Any]]:
    place = bin_of(m, width)
    order = np.argsort(place, kind="stable")
    order = order[np.isfinite(place[order])]
    bins, first = np.unique(place[order], return_index=True)
    # A slice for each bin, since there may be as many bins as observations.
    for number, values in zip(bins, np.split(rho[order], first[1:]), strict=False):
        yield {"group": "bin", "low": number * width, "high": (number + 1) * width, **mean_and_error(values)}


def group_rows(rho: Array, high: Mask) -> Iterator[dict[str, Any]]:
    for group, values in (("memorised", rho[high]), ("regular", rho[~high])):
        quantiles = np.quantile(values, np.linspace(0, 1, 101)).tolist() if len(values) else None
        yield {"group": group, **mean_and_error(values), "quantiles": quantiles}


def mean_and_error(values: Array) -> dict[str, Any]:
    """Mean and standard error; no error of one value, nothing of none."""
    n = len(values)
    error = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else None
    return {"mean": float(values.mean()) if n else None, "standard_error": error, "n": n}


def plan(config: Density, trainings: Trainings | None) -> Job | tuple[()]:
    if trainings is None or "neighbours" not in config.measures:
        return ()
    inputs = scores.job(config, trainings), nearest_neighbours.job(config, trainings)
    return Job(ratios, Ratios(config.score_bin), inputs)


def rows(tables: Tables, _: object) -> Iterator[Row]:
    """The mean ratio of the highly memorised and of the others, where scores and ratios are there.

    It is 1 where samples are as close as images never seen; but a decoder's means are smoother than images, and that
    moves it, memory or no memory.
    """
    scores, near = tables.one(SCORES), tables.one(NEIGHBOURS)
    if scores is None or near is None or tables.one(RATIOS) is None:
        return
    observations, rho, _ = pairs(scores, near)
    for group in ("memorised", "regular"):
        mean = statistic_with_interval(lambda _, m, group=group: mean_ratio(m, rho, group), observations)  # type: ignore[misc]
        yield row("neighbour ratio", {"observations": group}, mean.estimate, "repetition", mean.null, mean.p_value)


def mean_ratio(m: Array, rho: Array, group: str) -> float:
    """The mean ratio of the observations above the 95 % quantile of M, or of the others; NaN without any."""
    high = highly_memorised_mask(m)
    chosen = rho[high if group == "memorised" else ~high]
    return float(chosen.mean()) if len(chosen) else np.nan


MEASURE = Measure("ratios", RATIOS, plan, rows)
