"""Divergences and histories of pairs of models that were never trained, where a test says what they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from tasks.audits.unique_feature.evaluation import DIVERGENCES, HISTORY

Columns = Mapping[str, ArrayLike]


def divergences(canary: int, sets: Mapping[tuple[str, str], Columns], label: int = 3) -> pa.Table:
    """`sets` holds d_u, d_r, log_p_u and log_p_r per (model, images)."""
    tables = []
    for (model, images), columns in sets.items():
        n = len(np.asarray(columns["d_u"]))
        whole = {
            "canary": [canary] * n,
            "label": [label] * n,
            "seed": [1000 + canary] * n,
            "model": [model] * n,
            "images": [images] * n,
            "image": range(n),
        }
        arrays = [pa.array((whole | dict(columns))[field.name], field.type) for field in DIVERGENCES]
        tables.append(pa.Table.from_arrays(arrays, schema=DIVERGENCES))
    return pa.concat_tables(tables)


def history(canary: int, accuracies: Mapping[str, list[float]]) -> pa.Table:
    """One epoch per accuracy and model; the best one is kept."""
    rows = [
        {
            "canary": canary,
            "seed": 1000 + canary,
            "model": model,
            "epoch": epoch,
            "train_loss": 1.0 / epoch,
            "validation_loss": 1.0 - accuracy,
            "validation_accuracy": accuracy,
            "kept": accuracy == max(values),
        }
        for model, values in accuracies.items()
        for epoch, accuracy in enumerate(values, start=1)
    ]
    return pa.Table.from_pylist(rows, HISTORY)


def pair(canary: int, m: float, twin_m: float, n: int = 40) -> pa.Table:
    """A pair of models with these values of M, M_w equal to -M, on both sets of images, noise over images added."""
    rng = np.random.default_rng(canary)

    def columns(score: float) -> Columns:
        noise = rng.normal(0, 0.01, n)
        noise -= noise.mean()
        d_r, log_p_u = np.full(n, 0.5), np.full(n, -1.0)
        return {"d_u": d_r + score + noise, "d_r": d_r, "log_p_u": log_p_u, "log_p_r": log_p_u + score + noise}

    scores = {"canary": m, "twin": twin_m}
    return divergences(
        canary, {(model, images): columns(score) for model, score in scores.items() for images in ("probe", "train")}
    )
