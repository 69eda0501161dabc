"""The share of highly memorised observations by their log p, which shows whether they are outliers.

An observation is highly memorised if its matched-count score is above the 95 % quantile. An outlier is unlikely even
under models that trained on it: its U = log p is low. If all highly memorised observations were outliers, they would be
in the lowest bins; the paper finds more than half of them within the central 90 % of U.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 4.3, figures 3, 10 and
11.

Bin edges are multiples of the width, so that tables from two runs have the same bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from tasks.audits.density.config import Density, OutlierMeasure
from tasks.audits.density.highly_memorised import Array, Scored, highly_memorised_mask, scored_observations
from tasks.audits.density.measures import scores
from tasks.audits.density.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure
from tasks.contract.ranges import AtLeast, Finite, Ranged
from tasks.contract.summaries import Estimate, interval_fields
from tasks.datasets.dataset import is_numbered
from tasks.numerics import seeds, statistics

CLOSED = (0.005, 0.995)  # bins are closed between these quantiles of U, and open beyond
MOST = 10_000  # maximum number of bins

OUTLIERS = pa.schema(
    [
        ("low", pa.float64()),  # bin [low, high) of U, in nats; null: open
        ("high", pa.float64()),
        ("memorised", pa.int64()),  # number of observations
        ("regular", pa.int64()),
        *interval_fields("share"),  # share that is highly memorised, interval over repetitions; null: empty
        ("memorised_rows", pa.list_(pa.int64())),  # a few random examples
        ("regular_rows", pa.list_(pa.int64())),
    ]
)


@dataclass(frozen=True)
class Outliers(Ranged):
    """Bin width of U in nats, and the maximum number of examples of each group per bin.

    The paper uses widths of 500 for CelebA and 10 for MNIST.
    """

    width: Annotated[float, Finite()] = 10.0
    shown: Annotated[int, AtLeast(0)] = 5
    seed: Annotated[int, AtLeast(0)] = 0


@task(version=2, name="density.outliers")
def outliers(config: Outliers, inputs: Inputs) -> pa.Table:
    """Count the highly memorised observations in every bin of U (OUTLIERS), from their SCORES.

    Bin edges are multiples of the width. Closed bins cover the central 99 % of U. The first and the last row are open
    bins below and above it. Observations without a score are in no bin. Intervals are jackknife intervals over
    repetitions, with bins computed from all repetitions.
    """
    observations = scored_observations(inputs[0])
    high = highly_memorised_mask(observations.m)
    between = edges(observations.u, config.width)
    bin_numbers = np.searchsorted(between, observations.u, side="right")
    ends = [None, *between.tolist(), None]
    shares = _shares_of(observations, bin_numbers, len(between) + 1)
    rows = []
    for number in range(len(between) + 1):
        is_in_bin = bin_numbers == number
        memorised = observations.rows[is_in_bin & high]
        regular = observations.rows[is_in_bin & ~high]
        rows.append(_bin_row(config, number, ends[number], ends[number + 1], memorised, regular, shares[number]))
    return pa.Table.from_pylist(rows, OUTLIERS)


def _bin_row(
    config: Outliers,
    number: int,
    low: float | None,
    high: float | None,
    memorised: NDArray[np.int64],
    regular: NDArray[np.int64],
    share: Estimate,
) -> dict[str, Any]:
    return {
        "low": low,
        "high": high,
        "memorised": len(memorised),
        "regular": len(regular),
        "share": share.value,
        "share_low": None if share.low is None else max(0.0, share.low),
        "share_high": None if share.high is None else min(1.0, share.high),
        "memorised_rows": examples(config, "memorised", number, memorised),
        "regular_rows": examples(config, "regular", number, regular),
    }


def _shares_of(observations: Scored, bin_numbers: NDArray[np.int64], bins: int) -> list[Estimate]:
    """Return the share of highly memorised observations per bin, with a jackknife interval over repetitions."""
    of_bin = np.bincount(bin_numbers, minlength=bins)

    def shares(m: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.asarray(np.bincount(bin_numbers[highly_memorised_mask(m)], minlength=bins) / of_bin)

    all_shares = shares(observations.m)
    without_each = [shares(m) for m in observations.m_without.T]
    estimates = []
    for number in range(bins):
        shares_of_bin = [shares_without_one[number] for shares_without_one in without_each]
        estimates.append(statistics.jackknife(all_shares[number], shares_of_bin))
    return estimates


def examples(config: Outliers, group: str, number: int, rows: NDArray[np.int64]) -> list[int]:
    """Draw example rows of a group in this bin, in ascending order."""
    draw = seeds.generator(config.seed, "outlier examples", group, number)
    return sorted(draw.choice(rows, min(config.shown, len(rows)), replace=False).tolist())


def edges(u: Array, width: float) -> Array:
    """Return ascending bin edges that cover the central 99 % of U. Empty if no U is finite."""
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


def bin_of(values: ArrayLike, width: float) -> Array:
    """Return the bin of each value, an integer b with value in [b width, (b + 1) width) in float64.

    Infinite values and NaN are returned unchanged.
    """
    array = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):
        number = np.floor(array / width)
        # Correct by one if rounding moved the quotient up or down to an integer.
        number -= array < number * width
        return np.asarray(number + (array >= (number + 1) * width))


def plan(_: Density, trainings: Trainings | None) -> Job | tuple[()]:
    if trainings is None or is_numbered(trainings.config.data):
        return ()
    measure = trainings.config.measure(OutlierMeasure)
    if measure is None:
        return ()
    config = trainings.config
    binned = Outliers(measure.outlier_bin, seed=seeds.derive(config.seed, "outliers"))
    return Job(outliers, binned, (scores.job(trainings),))


MEASURE = Measure("outliers", OUTLIERS, plan)
