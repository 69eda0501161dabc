"""Training programs of users: they receive row numbers, and only they hold the records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from tasks.programs.function import TrainingJob

Array = NDArray[np.float64]

REMEMBERED = 7  # the row that `remember` knows
POINTS = np.random.default_rng(0).normal(size=(400, 3))
CLASSES = (POINTS[:, 0] + np.random.default_rng(1).normal(size=400) > 0).astype(np.int64)


def ignore_rows(job: TrainingJob) -> Array:
    """Log-likelihoods of models that differ only by their seed."""
    return -(job.ask % 5) + np.random.default_rng(job.seed).normal(size=len(job.ask))


def ignore_rows_and_seed(job: TrainingJob) -> Array:
    return -(job.ask % 5).astype(np.float64)


def remember(job: TrainingJob) -> Array:
    """The same as `ignore_rows`, but 20 nats more for one row if it was trained on."""
    knows = (job.ask == REMEMBERED) & (REMEMBERED in job.rows.tolist())
    return ignore_rows(job) + 20.0 * knows


def classify(job: TrainingJob) -> None:
    """Classify points by their neighbours among the training rows, which count most for themselves."""
    distances = ((POINTS[job.ask][:, None] - POINTS[job.rows]) ** 2).sum(axis=2)
    weights = np.exp(-2 * distances) * np.random.default_rng(job.seed).uniform(0.5, 1.5, len(job.rows)) + 1e-6
    p = (weights * CLASSES[job.rows]).sum(axis=1) / weights.sum(axis=1)
    p = 0.02 + 0.96 * p
    columns = {"row": job.ask, "p0": 1 - p, "p1": p, "label": CLASSES[job.ask]}
    csv.write_csv(pa.table(columns), Path(job.out) / "scores.csv")


def return_model(job: TrainingJob) -> Any:
    return lambda images: images
