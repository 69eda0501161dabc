"""Shares of questions answered rightly, with intervals over contexts, and the entropy of answers.

Questions of one context share what the model knows of it, so contexts are the independent units: whole contexts are
drawn with replacement. Where nothing, or everything, is answered rightly, draws do not vary and an interval of theirs
would have no width. As Agresti & Caffo 2000 do for the difference of two proportions, a part is therefore given one
context that is answered rightly and one that is not, both of mean size, before it is resampled; estimates are of the
questions alone. The entropy turns m into nats of memorised information.
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
DRAWN_AT_ONCE = 4_000_000  # weights of contexts in memory at a time


@dataclass(frozen=True, eq=False)
class ContextSums:
    """The questions of one part of the data, summed by their contexts.

    `sums` (contexts, columns) are sums of scores in [0, 1], one column for each thing that is scored; `counts`
    (contexts,) are numbers of questions.
    """

    sums: Array
    counts: Array

    @property
    def means(self) -> Array:
        """The mean score of a question, (columns,); NaN where there is no question."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.sums.sum(axis=0) / self.counts.sum())


def sum_by_context(scores: Array, contexts: NDArray[np.integer]) -> ContextSums:
    """Scores (questions, columns) in [0, 1], by their contexts (questions,), which are numbers of any kind."""
    _, places = np.unique(contexts, return_inverse=True)
    count = int(places.max()) + 1 if len(places) else 0
    sums = np.zeros((count, scores.shape[1]))
    np.add.at(sums, places, scores)
    return ContextSums(sums, np.bincount(places, minlength=count).astype(np.float64))


def bootstrap_means(of: ContextSums, resamples: int, rng: np.random.Generator) -> Array:
    """Means of resampled contexts, (resamples, columns)."""
    size = of.counts.mean()
    sums = np.vstack([of.sums, np.full(of.sums.shape[1], size), np.zeros(of.sums.shape[1])])
    counts = np.append(of.counts, [size, size])
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
    """The scores of one column on both parts, their difference, and its one-tailed p-value; None where undefined."""

    train: Estimate
    validation: Estimate
    difference: Estimate
    p_value: float | None


def contrasts(train: ContextSums, validation: ContextSums, resamples: int, seed: int) -> list[Contrast]:
    """Each column's mean on the training and the validation part, and the first less the second.

    Intervals are percentiles of the resampled contexts, which always hold the estimate; n counts contexts. The p-value
    is that of a difference above 0: the share of resampled differences at or below 0, (k + 1) / (resamples + 1), so
    that it is below 0.025 where the interval lies above 0. Nothing is estimated of a part without questions.
    """
    columns = train.sums.shape[1]
    parts = (train, validation)
    sizes = [len(each.counts) for each in parts]
    if not all(sizes):
        nothing = [Estimate(None, None, None, size) for size in sizes]
        return [Contrast(nothing[0], nothing[1], Estimate(None, None, None, sum(sizes)), None)] * columns
    rngs = [seeds.generator(seed, "contexts", name) for name in ("train", "validation")]
    drawn = [bootstrap_means(each, resamples, rng) for each, rng in zip(parts, rngs, strict=True)]
    means = [each.means for each in parts]
    found = []
    for column in range(columns):
        sides = [
            estimate(mean[column], draws[:, column], size)
            for mean, draws, size in zip(means, drawn, sizes, strict=True)
        ]
        differences = drawn[0][:, column] - drawn[1][:, column]
        difference = estimate(means[0][column] - means[1][column], differences, sum(sizes))
        p_value = (int((differences <= 0).sum()) + 1) / (resamples + 1)
        found.append(Contrast(sides[0], sides[1], difference, p_value))
    return found


def estimate(value: float, draws: Array, n: int) -> Estimate:
    """The value with the central interval of its draws, widened to hold the value."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(value), float(min(low, value)), float(max(high, value)), n)


ENOUGH = 10.0  # samples for each of exp(H) equally likely answers: "n exp(-H) >> 1" in the paper's assumption 6


def entropy(answers: Sequence[Hashable]) -> float | None:
    """The empirical entropy H(X) of answers in nats; None where there are too few of them to estimate it.

    An empirical entropy is at most log n, whatever the true one: where n exp(-H) is below ENOUGH, most answers occur
    too rarely for it to mean anything. Bombari et al. 2022, assumptions 2 and 6 of section 4.
    """
    n = len(answers)
    if not n:
        return None
    counts = Counter(answers).values()
    nats = math.log(n) - sum(count * math.log(count) for count in counts) / n
    return nats if n * math.exp(-nats) >= ENOUGH else None
