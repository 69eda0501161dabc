"""Train scikit-learn estimators, one per job, and return their outputs for a part of a data set.

An estimator cannot be stored safely, because its files are pickles. The job that trains it therefore also evaluates it,
and its table contains log-probabilities instead of weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.job import Inputs, Work, task
from tasks.contract.ranges import AtLeast, Ranged
from tasks.contract.schemas import MODEL
from tasks.datasets.catalog import load
from tasks.datasets.images import Splits, fractions
from tasks.datasets.mixtures import BalancedHalf, CoinedCanaries, CoinHalf, Part, Rows, Share
from tasks.datasets.picture_rows import Selected, empty_rows, slices, whole_split
from tasks.models.catalog import Network
from tasks.models.estimators import Estimator

VALIDATED = 1000  # maximum number of test rows; they have no effect on training
# One row. `seed`, `best_epoch` and `history` mean the same as in MODEL, with a single epoch.
ESTIMATED = pa.schema(
    [
        MODEL.field("seed"),
        MODEL.field("best_epoch"),
        MODEL.field("history"),
        ("classes", pa.int32()),
        ("rows", pa.list_(pa.int64())),  # of the training split
        ("log_p", pa.list_(pa.float64())),  # of all classes for each of these rows, row by row
    ]
)


@dataclass(frozen=True)
class EstimatorTraining(Ranged):
    """One estimator: the rows that it is trained on, and those that it is evaluated on."""

    share: Share | BalancedHalf | CoinHalf | CoinedCanaries
    scored: Part
    classes: Annotated[int, AtLeast(2)]
    network: Network
    seed: Annotated[int, AtLeast(0)] = 0


def work(config: EstimatorTraining) -> Work:
    """Return the work: values of training rows, since most estimators take time in proportion to them."""
    images = load(config.share.part.data)
    values = len(config.share.rows(images)) * int(np.prod(images.shape))
    return Work({f"fit {config.network.name}": float(values)})


@task(version=1, name="estimator.train", trains=1, work=work)
def train(config: EstimatorTraining, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - a training reads no tables
    """Train an estimator and evaluate it (ESTIMATED)."""
    images = load(config.share.part.data)
    scored_images = load(config.scored.data)
    if isinstance(config.share, CoinedCanaries) and config.share.is_altered:
        images = config.share.alter_canaries(images)
        scored_images = images
    rows = config.share.rows(images)
    labels = images.train.labels[rows]
    estimator = Estimator(
        str(config.network), images.shape, values_of(images, rows), labels, config.classes, config.seed
    )
    validation_labels = images.test.labels[:VALIDATED]
    validation_log_p = estimator.log_p(_values(whole_split(images.test, VALIDATED)))
    epoch = {
        "epoch": 1,
        "train_loss": _mean_loss(estimator.log_p(values_of(images, rows)), labels),
        "validation_loss": _mean_loss(validation_log_p, validation_labels),
        "validation_accuracy": float((validation_log_p.argmax(axis=1) == validation_labels).mean()),
    }
    scored = config.scored.rows(scored_images)
    row = {
        "seed": config.seed,
        "best_epoch": 1,
        "history": [epoch],
        "classes": config.classes,
        "rows": scored,
        "log_p": estimator.log_p(values_of(scored_images, scored)).ravel(),
    }
    return pa.Table.from_pylist([row], schema=ESTIMATED)


def _mean_loss(log_p: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    return -float(log_p[np.arange(len(labels)), labels].mean())


def values_of(images: Splits, rows: Rows) -> NDArray[np.float32]:
    """Return the features of these training rows, or their pixels in [0, 1], (rows, features)."""
    return _values(Selected(images.train, rows))


def _values(images: Selected) -> NDArray[np.float32]:
    out: NDArray[np.float32] = empty_rows((len(images), math.prod(images.shape[1:])), np.float32)
    for part, pixels in slices(images):
        out[part] = fractions(pixels).reshape(len(pixels), -1)
    return out


def is_estimated(model: pa.Table) -> bool:
    """Return whether a model's table holds the outputs of an estimator (ESTIMATED) rather than weights."""
    return bool(model.schema.equals(ESTIMATED))


def outputs_of(model: pa.Table, rows: Rows) -> NDArray[np.float64]:
    """Return the log-probabilities (rows, classes) of an estimator for these training rows.

    Raises ValueError if it was not evaluated on one of them.
    """
    scored = model["rows"].combine_chunks().flatten().to_numpy()
    log_p = model["log_p"].combine_chunks().flatten().to_numpy().reshape(len(scored), -1)
    places = np.searchsorted(scored, rows)  # a part's rows ascend
    if len(rows) and (places.max() == len(scored) or (scored[places] != rows).any()):
        raise ValueError("the estimator was not evaluated on all of these rows")
    log_p_of_rows: NDArray[np.float64] = log_p[places]
    return log_p_of_rows
