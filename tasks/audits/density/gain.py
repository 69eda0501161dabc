"""The mean gain of log p that training on an observation brings, over all of them: arrays in, numbers out.

    g_l = mean over i of (mean over the models of repetition l that trained on i of log p_i
                          - log p_i by the one that did not)

Where nothing is memorised each g_l is 0 on average, whatever the spread of log p: unlike the published score no log
mean exp is in it. Repetitions are independent, so that their mean has a t interval.

Observations that any model holds impossible (-inf) have no gain and stay out, of every repetition; how many are left
is given. `log_p` (n, L, K) and `held_out` (n, L) are as in tasks.audits.density.memorization.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks import statistics
from tasks.audits.density.memorization import Array, Indices, Mask, sides
from tasks.statistics import Estimate


class Gain:
    """Gathers blocks of observations into each repetition's gain and its variance over partitions."""

    def __init__(self, repetitions: int, folds: int) -> None:
        self.observations = 0
        self.models: Mask | None = None  # (L, K), that the first observation has
        self.alike = True  # whether all observations have these
        self.sizes = np.zeros((repetitions, folds))  # observations that each model held out
        self.gains = np.zeros(repetitions)  # sum over observations
        # Of b = log p less its mean over the repetition's models: sums over observations, and of products.
        self.sums = np.zeros((repetitions, folds))
        self.products = np.zeros((repetitions, folds, folds))

    def add(self, log_p: Array, held_out: Indices) -> None:
        """Add a block's observations."""
        _, held = sides(log_p, held_out)
        finite = ~(log_p == -np.inf).any(axis=(1, 2))
        log_p, held_out, held = log_p[finite], held_out[finite], held[finite]
        there = ~np.isnan(log_p)
        if len(there):
            self.models = there[0] if self.models is None else self.models
            self.alike &= bool((there == self.models).all())
        count = there.sum(axis=2)
        usable = ~np.isnan(held) & (count > 1)
        self.observations += int(usable.any(axis=1).sum())
        mean = np.where(there, log_p, 0.0).sum(axis=2) / np.maximum(count, 1)
        b = np.where(there & usable[:, :, None], log_p - mean[:, :, None], 0.0)
        self.gains -= (np.take_along_axis(b, held_out[:, :, None], axis=2)[:, :, 0] * scale(count)).sum(axis=0)
        for repetition, part in enumerate(b.transpose(1, 0, 2)):
            out = held_out[usable[:, repetition], repetition]
            self.sizes[repetition] += np.bincount(out, minlength=b.shape[2])
            self.sums[repetition] += part.sum(axis=0)
            self.products[repetition] += part.T @ part

    @property
    def by_repetition(self) -> Array:
        """g_l of every repetition; NaN where it has no observation with models of either kind."""
        number = self.sizes.sum(axis=1)
        return np.where(number > 0, self.gains / np.maximum(number, 1), np.nan)

    @property
    def estimate(self) -> Estimate:
        """The mean of the repetitions' gains with its t interval, in nats; n counts repetitions that have one."""
        gains = self.by_repetition
        return statistics.mean(gains[~np.isnan(gains)])

    def p_value(self) -> float | None:
        """P of a gain at least as large had each repetition's partition been another one, into folds of the same sizes.

        The normal approximation with the exact mean and variance over all partitions: with a(i, k) = log p of
        observation i by model k, n_k the folds' sizes and d = a less its means over folds and over observations,

            Var[sum over i of a(i, fold of i)] = sum over i and k of n_k d(i, k)^2 / (n - 1)

        Hoeffding 1951, "A combinatorial central limit theorem", theorem 2. The repetitions' variances add. None where
        no partition would give another gain, or observations differ in which models there are.
        """
        usable = self.sizes.sum(axis=1) > 1
        if self.models is None or not self.alike or not usable.any():
            return None
        counts = self.models.sum(axis=1)
        moments = [self.moments(each, float(scale(counts)[each])) for each in np.flatnonzero(usable).tolist()]
        mean = float(np.mean([each for each, _ in moments]))
        variance = sum(each for _, each in moments) / len(moments) ** 2
        if not variance > 0:
            return None
        from scipy import stats

        return float(stats.norm.sf((self.by_repetition[usable].mean() - mean) / np.sqrt(variance)))

    def t_test(self) -> float | None:
        """The one-tailed p-value that the repetitions' gains have a mean above 0; None with fewer than two.

        For leave-one-out, whose models of all data answer for every observation: these are not drawn anew one by one.
        """
        gains = self.by_repetition
        gains = gains[~np.isnan(gains)]
        return statistics.paired_greater(gains, np.zeros(len(gains))).p_value

    def moments(self, repetition: int, scaled: float) -> tuple[float, float]:
        """The mean and the variance of g_l over all partitions into folds of the sizes there are."""
        sizes, sums, products = self.sizes[repetition], self.sums[repetition], self.products[repetition]
        n = sizes.sum()
        weights = sizes / n
        squares = np.diag(products) - 2 * products @ weights + weights @ products @ weights
        squares = squares - n * (sums / n - weights @ sums / n) ** 2
        factor = float(scaled / n)
        return -factor * float(weights @ sums), max(0.0, factor**2 * float(sizes @ squares / (n - 1)))


def scale(models: NDArray[np.int64]) -> Array:
    """c / (c - 1): what turns log p less the mean over all c models into that less the mean over the others."""
    return np.asarray(models / np.maximum(models - 1, 1))
