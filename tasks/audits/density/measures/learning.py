"""Skill of the models: log p of held-out images compared with the best constant distribution.

    skill = mean over observations of log p by the models that held them out - log p by the constant        in nats

The constant is a distribution of independent pixels, fitted to the training images. For models of binary pixels it is a
Bernoulli distribution per pixel. Otherwise it is a normal distribution of byte + u with u uniform in [0, 1], the
quantity whose density log p refers to (`tasks.models.likelihoods`). A model that is no better has learnt nothing about
dependencies between pixels. The constant is fitted to all training images, including the evaluated ones, so that it is
the best possible. log p of an observation under the constant is the mean over its draws:

    x log q + (1 - x) log(1 - q)                                      x: byte / 255, q = (1 + sum of x) / (2 + images)
    -(log 2 pi v + ((b + 1/2 - m)^2 + 1/12) / v) / 2                  b: byte, m: mean, v: variance of byte + u

This measure is ours. It does not decide the answer, but an answer about models without skill begins with it
(`tasks.contract.learning`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.density.config import About, Density
from tasks.audits.density.highly_memorised import lists
from tasks.audits.density.measures import scores
from tasks.audits.density.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.learning import log_p_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Estimate, Row
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import PictureSet, Pixels, rows_at_once
from tasks.datasets.picture_rows import Selected, whole_split
from tasks.models.catalog import DensityModel
from tasks.models.custom import is_own
from tasks.numerics import statistics
from tasks.programs.config import Program
from tasks.training.density_config import Split

Array = NDArray[np.float64]
AT_ONCE = 1024  # images per batch
LEARNING = pa.schema(
    [
        ("log_p", pa.float64()),  # mean over observations, in nats
        ("constant", pa.float64()),  # the same under the constant distribution
        ("low", pa.float64()),  # 95 % interval of the difference over observations
        ("high", pa.float64()),
        ("n", pa.int64()),  # number of held-out observations
    ]
)


@dataclass(frozen=True)
class Constant:
    """The first `examples` training images (0: all), the model, and the evaluated split."""

    data: Dataset
    model: DensityModel
    examples: int
    asked: Split


@task(version=1, name="density.learning")
def learning(config: Constant, inputs: Inputs) -> pa.Table:
    """Compare log p of held-out observations with log p under the constant (LEARNING), using the score table."""
    (table,) = inputs
    held_out = lists(table, "held_out")
    is_finite = np.isfinite(held_out)
    counts = is_finite.sum(axis=1)
    is_scored = counts > 0
    log_p = np.where(is_finite, held_out, 0.0).sum(axis=1)[is_scored] / counts[is_scored]
    constant = constant_log_p(config, load(config.data), table["row"].to_numpy()[is_scored])
    difference = statistics.mean((log_p - constant).tolist())
    return make_table(
        LEARNING,
        log_p=log_p.mean() if difference.n else None,
        constant=constant.mean() if difference.n else None,
        low=difference.low,
        high=difference.high,
        n=difference.n,
    )


def constant_log_p(config: Constant, images: PictureSet, rows: NDArray[np.int64]) -> Array:
    """Compute log p of these rows of the evaluated split under the constant, (rows,), in nats."""
    train_images = whole_split(images.train, config.examples)
    if config.asked == "test":
        evaluated = images.test
    else:
        evaluated = images.train
    sums, squares = _pixel_sums(train_images)
    mean = sums / len(train_images)
    if sees_binary(config.model, images):
        q = (1 + sums / 255) / (2 + len(train_images))
        log_density = partial(bernoulli_log_p, q=q)
    else:
        variance = np.maximum(squares / len(train_images) - mean**2, 0.0) + 1 / 12
        log_density = partial(normal_log_p, mean=mean, variance=variance)
    parts = []
    at_once = rows_at_once(images.shape, AT_ONCE)
    for start in range(0, len(rows), at_once):
        parts.append(log_density(_flat(evaluated.pixels(rows[start : start + at_once]))))
    return np.concatenate(parts) if parts else np.empty(0)


def sees_binary(model: DensityModel, images: PictureSet) -> bool:
    """Return whether the model sees binary pixels."""
    from tasks.models.likelihoods import Binary
    from tasks.training.custom_density import DensityModule
    from tasks.training.density_objective import OURS

    if is_own(model.name):
        return isinstance(DensityModule(str(model), images.shape).preparation, Binary)
    return isinstance(OURS[model.name](images.shape).preparation, Binary)


def bernoulli_log_p(pixels: Array, q: Array) -> Array:
    """Compute the mean log probability of binary pixels that are 1 with probability byte / 255, (images,)."""
    share = pixels / 255
    log_p: Array = share @ np.log(q) + (1 - share) @ np.log1p(-q)
    return log_p


def normal_log_p(pixels: Array, mean: Array, variance: Array) -> Array:
    """Compute the mean log density of byte + u under normal pixels, (images,). `mean` is the mean of the bytes."""
    squared_errors = (pixels - mean) ** 2 + 1 / 12
    log_p: Array = -0.5 * (np.log(2 * math.pi * variance).sum() + squared_errors @ (1 / variance))
    return log_p


def _pixel_sums(images: Selected) -> tuple[Array, Array]:
    """Sum each pixel and its square over the images, (pixels,) each."""
    size = math.prod(images.shape[1:])
    sums = np.zeros(size)
    squares = np.zeros(size)
    at_once = rows_at_once(images.shape[1:], AT_ONCE)
    for start in range(0, len(images), at_once):
        part = _flat(images[start : start + at_once])
        sums += part.sum(axis=0)
        squares += (part**2).sum(axis=0)
    return sums, squares


def _flat(images: Pixels) -> Array:
    return images.reshape(len(images), -1).astype(np.float64)


def plan(_: Density, trainings: Trainings | None) -> Job | tuple[()]:
    if trainings is None:
        return ()
    config = trainings.config
    if isinstance(config.training, Program):  # its log p may refer to other quantities than pixels
        return ()
    constant = Constant(config.data, config.training.model, config.examples, config.evaluation_split)
    return Job(learning, constant, (scores.job(trainings),))


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the rows do not depend on any setting
    for learning_row in tables.rows(LEARNING):
        if learning_row["log_p"] is None:
            continue
        difference = Estimate(
            learning_row["log_p"] - learning_row["constant"],
            learning_row["low"],
            learning_row["high"],
            learning_row["n"],
        )
        yield log_p_row(learning_row["log_p"], learning_row["constant"], difference, "held-out images", "observation")


MEASURE = Measure("learning", LEARNING, plan, rows)
