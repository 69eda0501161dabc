"""The distance of training images to samples of the model, relative to that of images the model never saw.

    rho_i = min over v in V of d(x_i, v) / min over s in S of d(x_i, s)

V are the images of the test split (for CelebA, the validation images). S are equally many samples of the model trained
on all data. d is the Euclidean distance between images downsampled by 2. If rho is above 1, the closest sample is
closer than the closest image that the model never saw.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", eq. 6. Their released analysis
measures every distance from the first image of each 256; here it is measured from the image itself.

A second table gives rho by score bin, and for highly memorised and other observations (section 4.4, figures 5, 12 and
13). Their released histograms split the two groups at a score of 0.95 nats; here the split is at the 95 % quantile of
the score, as in their text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.density.config import Density, NeighbourMeasure
from tasks.audits.density.highly_memorised import (
    Array,
    Mask,
    OfAll,
    Scored,
    column,
    highly_memorised_mask,
    scored_observations,
    statistic_with_interval,
)
from tasks.audits.density.measures import scores
from tasks.audits.density.measures.duplicates import Closest, closest, closest_other, first_images, halve
from tasks.audits.density.measures.outliers import bin_of
from tasks.audits.density.measures.scores import SCORES
from tasks.audits.density.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.ranges import AtLeast, Finite, Ranged
from tasks.contract.schemas import make_table, nan_as_null
from tasks.contract.summaries import Estimate, Row, row
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.picture_rows import Selected, whole_split
from tasks.numerics.statistics import proportion
from tasks.training.density_config import Split

if TYPE_CHECKING:
    from tasks.datasets.images import PictureSet


NEIGHBOURS = pa.schema(
    [
        ("row", pa.int64()),
        ("to_validation", pa.float64()),  # distance to the closest image of V, pixels in [0, 1]
        ("to_sample", pa.float64()),  # distance to the closest image of S
        ("ratio", pa.float64()),  # rho; null if the distance to a sample is 0
        ("validation_row", pa.int64()),  # the closest image, as a row of the test split
        ("sample", pa.int64()),  # the closest sample
    ]
)


@dataclass(frozen=True)
class Neighbouring(Ranged):
    """The observations: the first `examples` training images (0: all), or all test images if `asked` is test."""

    data: Dataset
    examples: Annotated[int, AtLeast(0)] = 0
    asked: Split = "train"


@task(version=1, name="density.neighbours")
def neighbours(config: Neighbouring, inputs: Inputs) -> pa.Table:
    """Find every observation's closest validation image and closest sample, and compute rho (NEIGHBOURS).

    The input is the FITTED table of the model trained on all data; its last row contains the samples. An evaluated test
    image is not compared with itself: its V are the other test images.
    """
    images = load(config.data)
    samples = halve(_sampled_images(inputs[0], images))
    rows = halve(_observed_images(config, images))
    is_test = config.asked == "test"
    if is_test:
        validation = closest_other(rows)
    else:
        validation = closest(rows, halve(whole_split(images.test)))
    return table_of(validation, closest(rows, samples))


def _sampled_images(fitted: pa.Table, images: PictureSet) -> NDArray[np.float32]:
    """Return S, (drawn, h, w, c) in [0, 1]. Raises ValueError if S differs from V in number or shape."""
    samples = fitted["samples"][-1]
    if not samples.is_valid:
        raise ValueError("no images were drawn from the model of all data; it must draw one for each test image")
    values = np.frombuffer(samples.as_buffer(), "<f4")
    expected = len(images.test)
    if values.size != expected * np.prod(images.shape):
        count = values.size / np.prod(images.shape)
        raise ValueError(
            f"{count:g} images of shape {images.shape} were drawn; expected {expected}, one per test image"
        )
    return values.reshape(expected, *images.shape)


def _observed_images(config: Neighbouring, images: PictureSet) -> Selected:
    if config.asked == "test":
        return whole_split(images.test)
    return first_images(images.train, config.examples)


def table_of(validation: Closest, samples: Closest) -> pa.Table:
    rho = ratio(validation.distances, samples.distances)
    return make_table(
        NEIGHBOURS,
        row=range(len(rho)),
        to_validation=validation.distances,
        to_sample=samples.distances,
        ratio=nan_as_null(rho),
        validation_row=validation.rows,
        sample=samples.rows,
    )


def ratio(to_validation: NDArray[np.float64], to_sample: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute rho of each observation (eq. 6). NaN if the observation equals its closest sample.

    rho is 0 if a validation image equals the observation and no sample does.
    """
    rho = np.full(len(to_sample), np.nan)
    np.divide(to_validation, to_sample, out=rho, where=to_sample > 0)
    return rho


def copied_share(table: pa.Table) -> Estimate:
    """Return the share of observations that equal a sample after downsampling, with a Wilson interval.

    These observations have no rho.
    """
    return proportion(table["ratio"].null_count, table.num_rows)


def pairs(scores: pa.Table, neighbours: pa.Table) -> tuple[Scored, Array, Mask]:
    """Join scores and rho. Returns scores, rho and the mask of highly memorised observations, (observations,) each.

    Only observations with both are returned, but the quantile of M is taken over all observations with a score. Raises
    ValueError if an observation with a score has no neighbours.
    """
    observations = scored_observations(scores)
    rho_of = dict(zip(neighbours["row"].to_pylist(), column(neighbours, "ratio"), strict=True))
    rows_without_rho = [row for row in observations.rows.tolist() if row not in rho_of]
    if rows_without_rho:
        raise ValueError(f"observation {rows_without_rho[0]} has a score but no neighbours in their table")
    rho = np.array([rho_of[row] for row in observations.rows.tolist()], np.float64)
    is_known_rho = ~np.isnan(rho)
    return observations.select(is_known_rho), rho[is_known_rho], highly_memorised_mask(observations.m)[is_known_rho]


def correlations(scores: pa.Table, neighbours: pa.Table) -> Mapping[str, OfAll]:
    """Compute Pearson's and Spearman's correlation of M and rho over the observations that have both.

    Pearson's uses finite M; Spearman's ranks an infinite M. The paper finds "no strong correlation". Both depend on the
    samples of one model trained on all data. The null is not 0: samples may be far from images that models disagree on.
    """
    observations, rho, _ = pairs(scores, neighbours)
    return {
        "Pearson": statistic_with_interval(lambda _, m: pearson(m, rho), observations),
        "Spearman": statistic_with_interval(lambda _, m: spearman(m, rho), observations),
    }


def pearson(m: Array, rho: Array) -> float:
    """Compute r over pairs with finite M. NaN for fewer than three pairs or without variance."""
    finite = np.isfinite(m)
    m = m[finite]
    rho = rho[finite]
    if len(m) < 3 or m.min() == m.max() or rho.min() == rho.max():
        return np.nan
    return float(np.corrcoef(m, rho)[0, 1])


def spearman(m: Array, rho: Array) -> float:
    """Compute r of ranks (mean for ties) over pairs with M. NaN for fewer than three pairs or without variance."""
    from scipy import stats

    has_m = ~np.isnan(m)
    return pearson(stats.rankdata(m[has_m]), stats.rankdata(rho[has_m]))


RATIOS = pa.schema(
    [
        ("group", pa.string()),  # bin, memorised or regular
        ("low", pa.float64()),  # bin [low, high) of M, in nats; null for the groups
        ("high", pa.float64()),
        ("mean", pa.float64()),  # mean rho
        ("standard_error", pa.float64()),  # s / sqrt(n); null if n is 1
        ("n", pa.int64()),  # observations
        ("quantiles", pa.list_(pa.float64())),  # of rho at 0, 1 ... 100 % (101 values); null for bins
    ]
)


@dataclass(frozen=True)
class Ratios(Ranged):
    """Bin width of M in nats. The paper uses 50 for CelebA and 2 for MNIST."""

    width: Annotated[float, Finite()] = 2.0


@task(version=3, name="density.ratios")
def ratios(config: Ratios, inputs: Inputs) -> pa.Table:
    """Compute the mean of rho in every non-empty bin of M, and its distribution in both groups (RATIOS).

    The inputs are SCORES and NEIGHBOURS. Bin edges are multiples of the width. Observations without a score or without
    rho are excluded. An observation with an infinite score is in a group but in no bin.
    """
    observations, rho, high = pairs(inputs[0], inputs[1])
    return pa.Table.from_pylist([*_bin_rows(observations.m, rho, config.width), *group_rows(rho, high)], RATIOS)


def _bin_rows(m: Array, rho: Array, width: float) -> Iterator[dict[str, Any]]:
    bin_numbers = bin_of(m, width)
    order = np.argsort(bin_numbers, kind="stable")
    order = order[np.isfinite(bin_numbers[order])]
    bins, first = np.unique(bin_numbers[order], return_index=True)
    # Slicing handles the case that every observation has its own bin.
    for number, values in zip(bins, np.split(rho[order], first[1:]), strict=False):
        yield {"group": "bin", "low": number * width, "high": (number + 1) * width, **_mean_and_error(values)}


def group_rows(rho: Array, high: Mask) -> Iterator[dict[str, Any]]:
    for group, values in (("memorised", rho[high]), ("regular", rho[~high])):
        quantiles = None
        if len(values):
            quantiles = np.quantile(values, np.linspace(0, 1, 101)).tolist()
        yield {"group": group, **_mean_and_error(values), "quantiles": quantiles}


def _mean_and_error(values: Array) -> dict[str, Any]:
    """Return mean and standard error. The error is None for fewer than two values, the mean for none."""
    n = len(values)
    error = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else None
    return {"mean": float(values.mean()) if n else None, "standard_error": error, "n": n}


def _mean_ratio(m: Array, rho: Array, group: str) -> float:
    """Return the mean ratio of the highly memorised observations, or of the others. NaN if there are none."""
    high = highly_memorised_mask(m)
    ratios = rho[high if group == "memorised" else ~high]
    return float(ratios.mean()) if len(ratios) else np.nan


def plan(_: Density, trainings: Trainings | None) -> Job | tuple[()]:
    if trainings and _planned_measure(trainings):
        return job(trainings)
    return ()


def _planned_measure(trainings: Trainings) -> NeighbourMeasure | None:
    """Return the measure, or None if it is not requested or there is no model to draw samples from."""
    return trainings.config.measure(NeighbourMeasure) if trainings.full_model else None


def job(trainings: Trainings) -> Job:
    """Plan the neighbours, with the last link of the model trained on all data as input."""
    config = trainings.config
    return Job(
        neighbours, Neighbouring(config.data, config.examples, config.evaluation_split), (trainings.full_model[-1],)
    )


def rows(tables: Tables, _: object) -> Iterator[Row]:
    """Yield the correlation of rho and M, if scores exist, and the share of observations that equal a sample."""
    near = tables.one(NEIGHBOURS)
    scores = tables.one(SCORES)
    if near is None:
        return
    by = correlations(scores, near) if scores is not None else {}
    for name, correlation in by.items():
        metric = "correlation of M and the neighbour ratio"
        yield row(
            metric, {"by": name}, correlation.estimate, "repetition", null=correlation.null, p_value=correlation.p_value
        )
    yield row("observations that a sample equals", {}, copied_share(near), "observation", null=0.0)


def _plan_ratios(_: Density, trainings: Trainings | None) -> Job | tuple[()]:
    measure = None if trainings is None else _planned_measure(trainings)
    if trainings is None or measure is None:
        return ()
    inputs = scores.job(trainings), job(trainings)
    return Job(ratios, Ratios(measure.score_bin), inputs)


def ratio_rows(tables: Tables, _: object) -> Iterator[Row]:
    """Yield the mean ratio of highly memorised and of other observations, if scores and ratios exist.

    The ratio is 1 if samples are as close as unseen images. Decoder means are smoother than images, which changes the
    ratio with or without memorisation.
    """
    scores = tables.one(SCORES)
    near = tables.one(NEIGHBOURS)
    if scores is None or near is None or tables.one(RATIOS) is None:
        return
    observations, rho, _ = pairs(scores, near)
    for group in ("memorised", "regular"):
        mean = statistic_with_interval(lambda _, m, group=group: _mean_ratio(m, rho, group), observations)  # type: ignore[misc]
        yield row("neighbour ratio", {"observations": group}, mean.estimate, "repetition", mean.null, mean.p_value)


MEASURES = Measure("neighbours", NEIGHBOURS, plan, rows), Measure("ratios", RATIOS, _plan_ratios, ratio_rows)
