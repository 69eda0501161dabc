"""The label that the neighbours of a crop vote for, and how much they agree.

KNN_prob(c) = share of the K nearest public pictures whose label is c
KNN(crop)   = argmax_c KNN_prob(c), of equally frequent labels the lowest
KNN_conf    = sum_c KNN_prob(c) log KNN_prob(c), minus the entropy in nats: 0 where all neighbours agree

Meehan et al. 2023, section 4, "Identifying the most memorized samples".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.integer]
PICTURES = 4096  # counted at a time, so that memory stays bounded with many classes


@dataclass(frozen=True, eq=False)
class Votes:
    """The label that the neighbours of each crop vote for, (n,) int64, and minus the entropy of their labels, (n,)."""

    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]


def votes(neighbours: Labels, classes: int) -> Votes:
    """The votes of the neighbours' labels (n, k), each in [0, classes). ValueError where there are no neighbours."""
    n, k = neighbours.shape
    if k < 1:
        raise ValueError("k is 0; a vote needs at least one neighbour")
    predicted, confidence = np.empty(n, np.int64), np.empty(n)
    for start in range(0, n, PICTURES):
        part = slice(start, start + PICTURES)
        counts = count_labels(neighbours[part], classes)
        predicted[part] = counts.argmax(axis=1)  # the first of equals
        # The largest counts alone, in their order: equal counts of whatever labels have equal confidences, bit for bit.
        largest = np.sort(counts, axis=1)[:, ::-1][:, :k]
        confidence[part] = np.cumsum(terms(k)[largest], axis=1)[:, -1]
    return Votes(predicted, confidence)


def count_labels(neighbours: Labels, classes: int) -> NDArray[np.int64]:
    """How many neighbours have each label, (n, classes)."""
    n, _ = neighbours.shape
    places = np.arange(n)[:, None] * classes + neighbours
    return np.bincount(places.ravel(), minlength=n * classes).reshape(n, classes)


def terms(k: int) -> NDArray[np.float64]:
    """(c / k) log(c / k) for c = 0 ... k, with 0 log 0 = 0."""
    shares = np.arange(1, k + 1) / k
    return np.concatenate([[0.0], shares * np.log(shares)])
