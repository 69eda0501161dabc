"""Labels inferred from neighbours, the accuracy of the most confident inferences, and the deja vu score.

    KNN_prob(c) = share of the K nearest public images whose label is c
    KNN(crop)   = argmax_c KNN_prob(c), the lowest of equally frequent labels
    KNN_conf    = sum_c KNN_prob(c) log KNN_prob(c), minus the entropy in nats: 0 if all neighbours agree

    acc(p) = share of correct labels among the floor(p n / 100), at least one, images with the highest confidence
    deja vu score(p) = acc of the target model at p - acc of the reference model at p

Both models infer labels for the same images, which only one of them was trained on. Each model is scored on its own
most confident images. Ties in confidence are broken by position, so callers keep images sorted by id.

Meehan et al. 2023, section 4, "Identifying the most memorized samples", and section 4.1, "The deja vu score".

If no image is named correctly, all bootstrap samples are equal and their interval has zero width. Wilson's interval for
a proportion always has a width, and intervals for several proportions can be combined (MOVER, the method of variance
estimates recovery):

    lower limit of sum_i w_i p_i = value - sqrt(sum_i (w_i d_i)^2), d_i the distance of p_i to the limit that lowers it

Wilson 1927; Zou & Donner 2008, "Construction of confidence limits about effect measures: a general approach", eqs. 3
and 4, which for the difference of two proportions is Newcombe's method 10. Proportions are treated as independent. If
two models are correct on the same images, the sum varies less than this assumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Labels = NDArray[np.integer]
PERCENTAGES = range(1, 101)
Z = NormalDist().inv_cdf(0.975)
PICTURES = 4096  # images per batch, to bound memory with many classes
DRAWS = 2**15  # images drawn at one time for resamples


@dataclass(frozen=True, eq=False)
class Votes:
    """The label that each crop's neighbours vote for, int64 (n,), and the negative entropy of their labels, (n,)."""

    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]


def votes(neighbours: Labels, classes: int) -> Votes:
    """Count the votes of neighbour labels (n, k), each in [0, classes). Raises ValueError if k is 0."""
    n, k = neighbours.shape
    if k < 1:
        raise ValueError("k is 0; a vote needs at least one neighbour")
    predicted = np.empty(n, np.int64)
    confidence = np.empty(n)
    for start in range(0, n, PICTURES):
        part = slice(start, start + PICTURES)
        counts = _count_labels(neighbours[part], classes)
        predicted[part] = counts.argmax(axis=1)  # argmax breaks ties by the lowest label
        # Sum the k largest counts in sorted order, so that equal counts give bit-identical confidences for any labels.
        largest = np.sort(counts, axis=1)[:, ::-1][:, :k]
        confidence[part] = np.cumsum(terms(k)[largest], axis=1)[:, -1]
    return Votes(predicted, confidence)


def _count_labels(neighbours: Labels, classes: int) -> NDArray[np.int64]:
    """Count the neighbours with each label, (n, classes)."""
    n, _ = neighbours.shape
    places = np.arange(n)[:, None] * classes + neighbours
    return np.bincount(places.ravel(), minlength=n * classes).reshape(n, classes)


def terms(k: int) -> NDArray[np.float64]:
    """Return (c / k) log(c / k) for c = 0, ..., k, with 0 log 0 = 0."""
    shares = np.arange(1, k + 1) / k
    return np.concatenate([[0.0], shares * np.log(shares)])


@dataclass(frozen=True, eq=False)
class Inferences:
    """One model's inferences: whether each label is correct, and the confidence, both (n,)."""

    correct: Mask
    confidence: Floats

    def __len__(self) -> int:
        return len(self.correct)

    @cached_property
    def ranked(self) -> NDArray[np.intp]:
        """Image indices by descending confidence. Ties keep their order."""
        return np.argsort(-self.confidence, kind="stable")


def most_confident(n: int, percent: int) -> int:
    """Return the number of most confident images, floor(p n / 100) but at least one."""
    return max(1, percent * n // 100)


def numbers(n: int, percents: Sequence[int]) -> NDArray[np.int64]:
    """Vectorised `most_confident` over percentages."""
    return np.maximum(1, np.asarray(percents, np.int64) * n // 100)


def accuracy(inferences: Inferences, percents: Sequence[int] = PERCENTAGES) -> Floats:
    """Compute acc(p) for each percentage. NaN if there are no images."""
    n = len(inferences)
    if not n:
        return np.full(len(percents), np.nan)
    right = np.cumsum(inferences.correct[inferences.ranked])
    counts = numbers(n, percents)
    return np.asarray(right[counts - 1] / counts)


def resample_accuracy(inferences: Inferences, copies: NDArray[np.integer], percents: Sequence[int]) -> Floats:
    """Compute acc(p) on resamples, (..., percents), that contain image i `copies[..., i]` times, n images in total."""
    order = inferences.ranked
    ranked_copies = copies[..., order]
    is_correct = np.broadcast_to(inferences.correct[order], copies.shape)
    drawn = np.repeat(is_correct.ravel(), ranked_copies.ravel()).reshape(copies.shape)
    counts = numbers(len(inferences), percents)
    return np.asarray(np.cumsum(drawn, axis=-1)[..., counts - 1] / counts)


@dataclass(frozen=True, eq=False)
class Way:
    """One of the two test directions: images that the target model was trained on and the reference model was not.

    `labels` (n,) are the true labels. `ids` are the image ids in ascending order, used to break ties.
    """

    labels: NDArray[np.int64]
    target: Inferences
    reference: Inferences
    ids: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)


def bootstrap_accuracies(way: Way, percents: Sequence[int], resamples: int, rng: np.random.Generator) -> Floats:
    """Compute target and reference accuracy on the same bootstrap resamples, (resamples, 2, percents)."""
    n = len(way)
    if not n:
        return np.full((resamples, 2, len(percents)), np.nan)
    accuracies = np.empty((resamples, 2, len(percents)))
    at_once = max(1, DRAWS // n)
    for start in range(0, resamples, at_once):
        pairs = accuracies[start : start + at_once]
        rows = rng.integers(n, size=(len(pairs), n)) + n * np.arange(len(pairs))[:, None]
        copies = np.bincount(rows.ravel(), minlength=rows.size).reshape(rows.shape)
        pairs[:, 0] = resample_accuracy(way.target, copies, percents)
        pairs[:, 1] = resample_accuracy(way.reference, copies, percents)
    return accuracies


@dataclass(frozen=True, eq=False)
class Weighted:
    """Proportions (m,) over `counts` images (m,), one term of m weighted sums."""

    weight: float
    shares: Floats
    counts: NDArray[np.integer]


def wilson(shares: Floats, counts: NDArray[np.integer]) -> tuple[Floats, Floats]:
    """Return the lower and upper limits of Wilson's 95 % score interval for proportions over `counts` images."""
    shrunk = 1 + Z**2 / counts
    centre = (shares + Z**2 / (2 * counts)) / shrunk
    half = Z / shrunk * np.sqrt(shares * (1 - shares) / counts + Z**2 / (4 * counts**2))
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)  # exceeded only by rounding


def limits(parts: Sequence[Weighted]) -> tuple[Floats, Floats]:
    """Return lower and upper limits, (m,) each, for sums of weighted proportions."""
    value, below, above = (np.zeros(len(parts[0].shares)) for _ in range(3))
    for part in parts:
        low, high = wilson(part.shares, part.counts)
        if part.weight > 0:
            down = part.shares - low
            up = high - part.shares
        else:
            down = high - part.shares
            up = part.shares - low
        value += part.weight * part.shares
        below += (part.weight * down) ** 2
        above += (part.weight * up) ** 2
    return value - np.sqrt(below), value + np.sqrt(above)
