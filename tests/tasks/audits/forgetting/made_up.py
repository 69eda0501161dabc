"""Confidences of models that were never trained, and tables of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.forgetting.measures.query_confidences import CONFIDENCES

Array = NDArray[np.float64]


def models(
    rng: np.random.Generator, replicates: int, targets: int, images: int, share: float = 0.0, crossing: bool = False
) -> tuple[Array, Array, Array]:
    """Query, calibration and target models (models, images): effects of models and images, and noise of both.

    The confidences are float32 sigmoids; many of the query models are exactly 1. For a `share` of the images, a
    target has the confidences of a query model, and for the rest from a calibration model: its true rho is 1 - share.
    Query models are more certain about all images; with `crossing` functions, they are more certain about
    easy images and less certain about hard ones.
    """
    difficulty = 3 * rng.normal(size=images)

    def calibration(count: int) -> Array:
        shift = 0.5 + 0.5 * rng.normal(size=(count, 1))
        slope = 1 + 0.15 * rng.normal(size=(count, 1))
        return confidences(shift + slope * difficulty + rng.normal(size=(count, images)))

    def query(count: int) -> Array:
        shift = (0.5 if crossing else 8) + rng.normal(size=(count, 1))
        return confidences(shift + (3 if crossing else 1.5) * difficulty + rng.normal(size=(count, images)))

    target = calibration(targets)
    remembered = rng.random(target.shape) < share
    target[remembered] = query(targets)[remembered]
    return query(replicates), calibration(replicates), target


def confidences(logits: Array) -> Array:
    return (1 / (1 + np.exp(-logits.astype(np.float32)))).astype(np.float64)


def table(
    model: str,
    target: int | None,
    replicate: int,
    values: Array,
    groups: Array | None = None,
    resolution: float = 0.0,
    control: int = 0,
    repeat: Array | None = None,
    printed: float | None = None,
) -> pa.Table:
    """The stored confidences of one model; the last `control` images are the control set. Confidences above one half
    are right.

    `printed` is the last decimal place in a table, by default the one at which confidences are compared.
    """
    n = len(values)
    rows = np.arange(n)
    columns = [
        pa.array([model] * n),
        pa.array([target] * n, pa.int32()),
        pa.array([replicate] * n, pa.int32()),
        pa.array(np.where(rows < n - control, "query", "control")),
        pa.array(rows),
        pa.array(rows if groups is None else groups, pa.int64()),
        pa.array([0] * n, pa.int32()),
        pa.array(values, pa.float64()),
        pa.array(values > 0.5),
        pa.array(np.full(n, np.nan) if repeat is None else repeat, from_pandas=True),
        pa.array([resolution] * n),
        pa.array([resolution if printed is None else printed] * n),
    ]
    return pa.Table.from_arrays(columns, schema=CONFIDENCES)


def tables(query: Array, calibration: Array, *targets: Array) -> list[pa.Table]:
    """The tables of all models, with replicates numbered from 0."""
    result = [table("query", None, r, values) for r, values in enumerate(query)]
    result += [table("calibration", None, r, values) for r, values in enumerate(calibration)]
    for number, target in enumerate(targets):
        result += [table("target", number, r, values) for r, values in enumerate(target)]
    return result


def audit(
    rng: np.random.Generator,
    shares: tuple[float, ...] = (0.0,),
    replicates: int = 5,
    images: int = 400,
    domain_effect: float = 0.0,
) -> list[Array]:
    """Models (replicates, 2 x images); the first half of the images is D_Q, the rest is the control set.

    First the calibration models, then targets that hold these shares of D_Q. All targets are more certain about
    every image by `domain_effect`, as models with other data of the domain are. A held image has log-odds that are 4
    higher.
    """
    difficulty = 3 * rng.normal(size=2 * images)

    def trained(share: float, certainty: float) -> Array:
        log_odds = np.zeros((replicates, 2 * images))
        log_odds[:, :images] = 4 * (rng.random((replicates, images)) < share)
        return confidences(0.5 + certainty + difficulty + rng.normal(size=log_odds.shape) + log_odds)

    return [trained(0.0, 0.0), *(trained(share, domain_effect) for share in shares)]
