"""Whether leave-one-out scores keep within the epsilon of differential privacy.

A training is epsilon-differentially private if, for data that differ in one row, no event is more than exp(epsilon)
times as likely to follow from the one as from the other. What holds of events holds of the mean of any non-negative
function of what is trained, for that is a sum of events with positive weights. The density that trainings on D give an
image, P(x | D) = E[p(x | model) | trained on D], is such a mean, so that at every x

    M_LOO(i) = log P(x_i | D) - log P(x_i | D without i) <= epsilon

(and >= -epsilon): van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", eq. 8 and
what follows it. The converse does not hold.

**With delta above 0 no single score is bounded.** Then P(x | D) <= exp(epsilon) P(x | D without i) + delta times the
greatest density that any model gives x: of an image with a log p of -100 nats, a delta of 1e-5 leaves nothing of the
bound. DP-SGD is of that kind. What is shown for it is how large the scores are beside epsilon, and no violation of a
promise. The score of folds is never bounded: models of two folds differ in many rows.

**An estimate is from T trainings of either kind.** A log mean exp of few terms is about its largest, and low. The
interval is the jackknife's, leaving one trial out at a time, with Student's t of T - 1 degrees of freedom: too narrow
where a single training makes up the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks import statistics
from tasks.audits.density.config import Estimator
from tasks.audits.density.memorization import Terms
from tasks.statistics import Estimate

Array = NDArray[np.float64]

LEVEL = 0.05  # of error, or of false discoveries


@dataclass(frozen=True)
class Check:
    """The scores beside epsilon."""

    epsilon: float
    delta: float
    rows: int  # with a score
    row: int  # whose score is the largest
    largest: Estimate  # in nats, over trials; its 95 % interval is for all rows at once (Bonferroni)
    p_value: float | None  # if no row's score were above epsilon (Bonferroni)
    above: int  # rows whose estimate is above epsilon
    surely: int | None  # rows above it at 5 % false discoveries (Benjamini & Hochberg)

    @property
    def bounded(self) -> bool:
        """Whether the promise is one about every score."""
        return self.delta == 0


def check(
    rows: NDArray[np.integer],
    trained: Array,
    held_out: Array,
    epsilon: float,
    delta: float = 0.0,
    estimator: Estimator = "loo",
) -> Check:
    """The scores of `rows` (n,) beside epsilon, from log p by trial, NaN where there is no such model.

    `trained` (n, T) are in nats by models that trained on the row, `held_out` (n, T) by those that did not, T trials of
    each (the columns of SCORES). A row has neither interval nor p-value where its score is not finite, or would not be
    without one of the trials. ValueError where the scores are of folds, or no row has one.
    """
    if estimator != "loo":
        raise ValueError(f"estimator is {estimator}; epsilon is about a single row, and bounds scores of loo alone")
    if not 0 < epsilon < math.inf or not 0 <= delta < 1:
        raise ValueError(f"epsilon is {epsilon} and delta {delta}; they must be finite and above 0, and from 0 below 1")
    said = terms(trained, held_out)
    score = said.score
    scored = np.flatnonzero(~np.isnan(score))
    if not len(scored):
        raise ValueError("no row has a score to compare with epsilon: trainings with it or without it are missing")
    largest = int(scored[score[scored].argmax()])
    p_values = greater(said, epsilon)
    tested = p_values[~np.isnan(p_values)]
    # Bonferroni's: the row was chosen by its score.
    interval = statistics.jackknife(float(score[largest]), said.score_without_each[largest], 1 - LEVEL / len(scored))
    return Check(
        epsilon=epsilon,
        delta=delta,
        rows=len(scored),
        row=int(rows[largest]),
        largest=interval,
        p_value=min(1.0, len(tested) * float(tested.min())) if len(tested) else None,
        above=int((score[scored] > epsilon).sum()),
        surely=int((statistics.false_discovery_adjusted(tested) <= LEVEL).sum()) if len(tested) else None,
    )


def terms(trained: Array, held_out: Array) -> Terms:
    """What the models say, with one of either kind in a trial."""
    if trained.shape != held_out.shape or trained.ndim != 2:
        raise ValueError(f"trained is {trained.shape} and held_out {held_out.shape}; they must be (rows, trials) alike")
    there = [~np.isnan(side) for side in (trained, held_out)]
    sums = [np.where(known, side, -np.inf) for known, side in zip(there, (trained, held_out), strict=True)]
    return Terms(sums[0], there[0].astype(np.int64), sums[1], there[1].astype(np.int64))


def greater(said: Terms, epsilon: float) -> Array:
    """One-tailed p-values that scores are above epsilon, (n,), by the jackknife; NaN where it has no error."""
    from scipy import stats

    score, without = said.score, said.score_without_each
    trials = without.shape[1]
    known = np.isfinite(score) & np.isfinite(without).all(axis=1) & (trials > 1)
    found = np.full(len(score), np.nan)
    if known.any():
        each, apart = without[known], score[known] - epsilon
        errors = np.sqrt((trials - 1) / trials * ((each - each.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = np.where(errors > 0, apart / errors, np.where(apart > 0, np.inf, -np.inf))
        found[known] = stats.t.sf(statistic, trials - 1)
    return found
