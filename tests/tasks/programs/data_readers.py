"""Training programs of a user that read the changed records from {data}."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.programs.function import TrainingJob

NEAREST = 50.0  # log-odds of the label of a training record, for a model that memorises every record


def memorise(job: TrainingJob) -> NDArray[np.float64]:
    """A nearest-neighbour classifier in pixels: the log-odds are high if the record is trained on with its label."""
    assert job.data is not None
    train = np.load(job.data / "train.npz")
    ask = np.load(job.data / "ask.npz")
    assert np.array_equal(train["rows"], job.rows)
    assert np.array_equal(ask["rows"], job.ask)
    known = {}
    for picture, label in zip(train["images"], train["labels"].tolist(), strict=True):
        known[picture.tobytes()] = label
    scores = np.random.default_rng(job.seed).normal(size=len(job.ask))
    for index, (picture, label) in enumerate(zip(ask["images"], ask["labels"].tolist(), strict=True)):
        scores[index] += NEAREST * (known.get(picture.tobytes()) == label)
    return scores


def ignore(job: TrainingJob) -> NDArray[np.float64]:
    """Scores that depend on no record."""
    return np.random.default_rng(job.seed).normal(size=len(job.ask))
