"""How the ratio of distances to neighbours goes with the score: in bins of the score, and of both groups.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 4.4, figures 5, 12
and 13. Their released histograms of the groups split at a score of 0.95 nats; here it is the score's 95 % quantile,
as their text says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.density.bins import bin_of, check_width
from tasks.audits.density.outliers import column, highly_memorised, scored
from tasks.job import Inputs, task
from tasks.statistics import Correlation, correlation, rank_correlation

Array = NDArray[np.float64]

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
        check_width(self.width)


@task(version=2, name="density.ratios")
def ratios(config: Ratios, inputs: Inputs) -> pa.Table:
    """The mean of rho in every bin of M that is not empty, and its distribution in both groups (RATIOS).

    The inputs are SCORES and NEIGHBOURS. Edges are whole multiples of the width. Observations without a score or
    without rho are left out; those with an infinite score are in a group and in no bin.
    """
    m, rho, high = pairs(inputs[0], inputs[1])
    return pa.Table.from_pylist([*of_bins(m, rho, config.width), *of_groups(rho, high)], RATIOS)


def of_bins(m: Array, rho: Array, width: float) -> Iterator[dict[str, Any]]:
    place = bin_of(m, width)
    order = np.argsort(place, kind="stable")
    order = order[np.isfinite(place[order])]
    found, first = np.unique(place[order], return_index=True)
    # A slice for each bin, since there may be as many bins as observations.
    for each, values in zip(found, np.split(rho[order], first[1:]), strict=False):
        yield {"group": "bin", "low": each * width, "high": (each + 1) * width, **averaged(values)}


def of_groups(rho: Array, high: NDArray[np.bool_]) -> Iterator[dict[str, Any]]:
    for group, values in (("memorised", rho[high]), ("regular", rho[~high])):
        quantiles = np.quantile(values, np.linspace(0, 1, 101)).tolist() if len(values) else None
        yield {"group": group, **averaged(values), "quantiles": quantiles}


def averaged(values: Array) -> dict[str, Any]:
    """Mean and standard error; no error of one value, nothing of none."""
    n = len(values)
    error = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else None
    return {"mean": float(values.mean()) if n else None, "standard_error": error, "n": n}


def pairs(scores: pa.Table, neighbours: pa.Table) -> tuple[Array, Array, NDArray[np.bool_]]:
    """M, rho, and who is highly memorised, of the observations that have both: (observations,) each.

    The quantile of M is that of all which have a score. ValueError for a score whose neighbours are not there.
    """
    found = scored(scores)
    rho = dict(zip(neighbours["row"].to_pylist(), column(neighbours, "ratio"), strict=True))
    missing = [row for row in found.rows.tolist() if row not in rho]
    if missing:
        raise ValueError(f"observation {missing[0]} has a score, but its neighbours are not in their table")
    chosen = np.array([rho[row] for row in found.rows.tolist()], np.float64)
    there = ~np.isnan(chosen)
    return found.m[there], chosen[there], highly_memorised(found.m)[there]


def correlations(scores: pa.Table, neighbours: pa.Table) -> Mapping[str, Correlation]:
    """Pearson's and Spearman's correlation of M and rho, over the observations whose M is finite and that have rho.

    The paper sees "no strong correlation". The intervals are over observations, of these models and these samples.
    """
    m, rho, _ = pairs(scores, neighbours)
    finite = np.isfinite(m)
    given = m[finite], rho[finite]
    return {"Pearson": correlation(*given), "Spearman": rank_correlation(*given)}
