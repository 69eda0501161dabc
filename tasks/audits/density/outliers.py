"""Whether the highly memorised are outliers: how many there are where the model finds observations likely, or not.

Highly memorised is who has a score M above its 95 % quantile. An outlier is unlikely even to models that were trained
on it: its U = log p is low. Were the highly memorised outliers and nothing else, no bin but the lowest would hold any;
the paper finds more than half of them within the central 90 % of U.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 4.3, figures 3, 10
and 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks import seeds
from tasks.audits.density.bins import bin_of, check_width
from tasks.job import Inputs, task
from tasks.statistics import Estimate, proportion

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

HIGH = 0.95  # the quantile of M above which an observation is highly memorised
CLOSED = (0.005, 0.995)  # the quantiles of U between which bins have both their edges
MOST = 10_000  # bins

OUTLIERS = pa.schema(
    [
        ("low", pa.float64()),  # of a bin [low, high) of U, in nats; null: open
        ("high", pa.float64()),
        ("memorised", pa.int64()),  # observations
        ("regular", pa.int64()),
        ("share", pa.float64()),  # of the bin's, highly memorised, with its Wilson interval; null where it is empty
        ("share_low", pa.float64()),
        ("share_high", pa.float64()),
        ("memorised_rows", pa.list_(pa.int64())),  # a few of them, drawn by the seed
        ("regular_rows", pa.list_(pa.int64())),
    ]
)


@dataclass(frozen=True)
class Outliers:
    """Bins of U of a width in nats, and up to how many examples of both groups are drawn of each.

    The paper's widths: 500 for CelebA, 10 for MNIST.
    """

    width: float = 10.0
    shown: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        check_width(self.width)
        for name in ("shown", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")


@dataclass(frozen=True, eq=False)
class Scored:
    """The observations that have a score: rows, U and M, each (observations,); and how many have none."""

    rows: NDArray[np.int64]
    u: Array
    m: Array
    without: int


@task(version=1, name="density.outliers")
def outliers(config: Outliers, inputs: Inputs) -> pa.Table:
    """How many of the observations are highly memorised in every bin of U (OUTLIERS), from their SCORES.

    Edges are whole multiples of the width. The bins that hold the central 99 % of U, and those between, have two; what
    lies below and above is in two open ends, the first row and the last. Observations without a score are in none.
    The intervals are over observations as if these were independent, which those that models share are not wholly.
    """
    found = scored(inputs[0])
    high = highly_memorised(found.m)
    between = edges(found.u, config.width)
    place = np.searchsorted(between, found.u, side="right")
    ends = [None, *between.tolist(), None]
    rows = [
        in_bin(config, number, ends[number], ends[number + 1], found.rows[here & high], found.rows[here & ~high])
        for number, here in ((number, place == number) for number in range(len(between) + 1))
    ]
    return pa.Table.from_pylist(rows, OUTLIERS)


def in_bin(
    config: Outliers,
    number: int,
    low: float | None,
    high: float | None,
    memorised: NDArray[np.int64],
    regular: NDArray[np.int64],
) -> dict[str, Any]:
    share = proportion(len(memorised), len(memorised) + len(regular))
    return {
        "low": low,
        "high": high,
        "memorised": len(memorised),
        "regular": len(regular),
        "share": share.value,
        "share_low": share.low,
        "share_high": share.high,
        "memorised_rows": examples(config, "memorised", number, memorised),
        "regular_rows": examples(config, "regular", number, regular),
    }


def examples(config: Outliers, group: str, number: int, rows: NDArray[np.int64]) -> list[int]:
    """A few of the rows of a group in the bin of this number, ascending."""
    draw = seeds.generator(config.seed, "outlier examples", group, number)
    return sorted(draw.choice(rows, min(config.shown, len(rows)), replace=False).tolist())


def scored(table: pa.Table) -> Scored:
    """The observations of a SCORES table that have U and M; either may be infinite."""
    rows, u, m = (column(table, name) for name in ("row", "log_p_trained", "m"))
    there = ~(np.isnan(u) | np.isnan(m))
    return Scored(rows[there].astype(np.int64), u[there], m[there], int((~there).sum()))


def column(table: pa.Table, name: str) -> Array:
    """A column of numbers, NaN where it is null."""
    return np.asarray(table[name].to_numpy(), np.float64)


def highly_memorised(m: Array) -> Mask:
    """Who has a score above its 95 % quantile; or +inf, which is what an observation scores that all models who had it
    held out find impossible.

    The quantile is taken without interpolation, which an infinite score would spoil: the same ones are above it.
    """
    if not len(m):
        return np.zeros(0, np.bool_)
    return np.asarray((m > np.quantile(m, HIGH, method="lower")) | (m == np.inf))


def edges(u: Array, width: float) -> Array:
    """The edges of bins of this width that hold the central 99 % of U, ascending; none where no U is finite."""
    finite = u[np.isfinite(u)]
    if not len(finite):
        return np.empty(0)
    first, last = bin_of(np.quantile(finite, CLOSED), width)
    if not last - first < MOST:
        raise ValueError(
            f"width is {width}; the central 99 % of log p would be in {last - first + 1:.3g} bins of it, "
            f"and there must be at most {MOST}"
        )
    return np.asarray((first + np.arange(last - first + 2)) * width)


def within_central(table: pa.Table, share: float = 0.9) -> Estimate:
    """The share of the highly memorised whose U lies in the central `share` of U, with its Wilson interval.

    From SCORES. It is `share` where M has nothing to do with U, and 0 where the highly memorised are those with the
    lowest U. Section 4.3: "more than half" for CelebA. The interval is over observations.
    """
    found = scored(table)
    high = highly_memorised(found.m)
    if not high.any():
        return proportion(0, 0)
    tail = (1 - share) / 2
    # Without interpolation, which an infinite U would spoil: the inner neighbours.
    low = np.quantile(found.u, tail, method="higher")
    top = np.quantile(found.u, 1 - tail, method="lower")
    return proportion(int((high & (low <= found.u) & (found.u <= top)).sum()), int(high.sum()))
