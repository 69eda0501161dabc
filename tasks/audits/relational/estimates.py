"""Shares of correct answers with intervals over contexts, and the entropy of answers.

Contexts are the unit of replication, because a model's knowledge of a context helps with all its questions: the
bootstrap draws whole contexts with replacement. If all answers are correct, or none are, the resamples are identical
and an interval would have zero width. Therefore, as Agresti & Caffo 2000 do for the difference of two proportions, one
correct and one wrong context of mean size are added to each part before it is resampled. The estimates themselves use
only the real questions. The entropy converts m to nats of memorised information.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.contract.summaries import Estimate
from tasks.numerics import seeds

Array = NDArray[np.float64]
LEVEL = 0.95
DRAWN_AT_ONCE = 4_000_000  # context weights held in memory at once


@dataclass(frozen=True, eq=False)
class ContextSums:
    """Scores of one part of the data, summed by context.

    `sums` has shape (contexts, columns), with one column per score, each score in [0, 1]. `counts` has shape
    (contexts,) and holds the number of questions per context.
    """

    sums: Array
    counts: Array

    @property
    def means(self) -> Array:
        """Mean score per question, shape (columns,). NaN if there are no questions."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.sums.sum(axis=0) / self.counts.sum())


def sum_by_context(scores: Array, contexts: NDArray[np.integer]) -> ContextSums:
    """Sum scores by context.

    `scores` has shape (questions, columns) and values in [0, 1]; `contexts` has shape (questions,) and holds context
    numbers.
    """
    _, places = np.unique(contexts, return_inverse=True)
    count = int(places.max()) + 1 if len(places) else 0
    sums = np.zeros((count, scores.shape[1]))
    np.add.at(sums, places, scores)
    return ContextSums(sums, np.bincount(places, minlength=count).astype(np.float64))


def bootstrap_means(context_sums: ContextSums, resamples: int, rng: np.random.Generator) -> Array:
    """Return the means over resampled contexts, shape (resamples, columns)."""
    size = context_sums.counts.mean()
    sums = np.vstack(
        [context_sums.sums, np.full(context_sums.sums.shape[1], size), np.zeros(context_sums.sums.shape[1])]
    )
    counts = np.append(context_sums.counts, [size, size])
    contexts = len(counts)
    means = np.empty((resamples, sums.shape[1]))
    step = max(1, DRAWN_AT_ONCE // contexts)
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        weights = rng.multinomial(contexts, np.full(contexts, 1 / contexts), stop - start).astype(np.float64)
        means[start:stop] = weights @ sums / (weights @ counts)[:, None]
    return means


@dataclass(frozen=True)
class Contrast:
    """One score on both parts, their difference, and its one-tailed p-value (None if undefined)."""

    train: Estimate
    validation: Estimate
    difference: Estimate
    p_value: float | None


def contrasts(train: ContextSums, validation: ContextSums, resamples: int, seed: int) -> list[Contrast]:
    """Contrast the mean of each column on the training part with that on the validation part.

    Intervals are bootstrap percentiles over contexts, widened if necessary to contain the estimate; n counts contexts.
    The p-value of a difference above 0 is (k + 1) / (resamples + 1), where k is the number of resampled differences at
    or below 0; it is below 0.025 if the interval is above 0. If a part has no questions, all estimates are None.
    """
    columns = train.sums.shape[1]
    parts = (train, validation)
    sizes = [len(part.counts) for part in parts]
    if not all(sizes):
        nothing = [Estimate(None, None, None, size) for size in sizes]
        return [Contrast(nothing[0], nothing[1], Estimate(None, None, None, sum(sizes)), None)] * columns
    rngs = [seeds.generator(seed, "contexts", name) for name in ("train", "validation")]
    resampled = []
    for part, rng in zip(parts, rngs, strict=True):
        resampled.append(bootstrap_means(part, resamples, rng))
    means = [part.means for part in parts]
    results = []
    for column in range(columns):
        sides = []
        for mean, draws, size in zip(means, resampled, sizes, strict=True):
            sides.append(estimate(mean[column], draws[:, column], size))
        differences = resampled[0][:, column] - resampled[1][:, column]
        difference = estimate(means[0][column] - means[1][column], differences, sum(sizes))
        p_value = (int((differences <= 0).sum()) + 1) / (resamples + 1)
        results.append(Contrast(sides[0], sides[1], difference, p_value))
    return results


def estimate(value: float, draws: Array, n: int) -> Estimate:
    """Return the value with the central interval of its draws, widened if necessary to contain the value."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(value), float(min(low, value)), float(max(high, value)), n)


ENOUGH = 10.0  # samples per equally likely answer, exp(H) of them: "n exp(-H) >> 1" in assumption 6 of the paper


def entropy(answers: Sequence[Hashable]) -> float | None:
    """Return the empirical entropy H(X) of answers in nats, or None if there are too few answers.

    The empirical entropy cannot exceed log n, whatever the true entropy is. If n exp(-H) is below ENOUGH, most answers
    are too rare for an estimate. Bombari et al. 2022, assumptions 2 and 6 of section 4.
    """
    n = len(answers)
    if not n:
        return None
    counts = Counter(answers).values()
    nats = math.log(n) - sum(count * math.log(count) for count in counts) / n
    return nats if n * math.exp(-nats) >= ENOUGH else None
