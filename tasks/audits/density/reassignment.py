"""Scores under reassigned held-out models, and their p-values.

In each repetition, the model that holds an observation out is drawn uniformly from the K models. Without memorisation,
the models' answers do not depend on this draw, so every other draw was equally likely. The share of draws that score at
least as high is then an exact p-value for each observation, for any models and any number of models. If the model that
held the observation out is missing, the repetition contributes to V in no draw. Otherwise the draw is among the
existing models, which are equally likely.

A p-value from B draws is at least 1 / (1 + B), which is too large to identify one observation among 60,000. For scores
that few draws reach, the exact share among all K^L assignments is computed instead: the share of sums of one value from
each of L lists that are at most a bound (`share_below`). For L = K = 10 there are 10^10 assignments, so they are not
enumerated. All values are at least 0, so a value can be dropped if it exceeds the bound together with the smallest
values of the other lists. The remaining lists are split into two halves (meet in the middle). All sums of each half are
computed, at most K^(L/2), and for each sum of one half, bisection counts the sums of the other half that fit. This is
exact and takes K^(L/2) log K^(L/2) steps. Horowitz & Sahni 1974, "Computing partitions with applications to the
knapsack problem", section 2.

`log_p` (n, L, K) and `held_out` (n, L) are as in tasks.audits.density.memorization.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.audits.density.memorization import Array, Indices, Mask, lower_log_p, terms

# Mathematically equal sums may differ in their last digits, so sums within this tolerance count as equal. This can only
# make p larger.
TOLERANCE = 1e-12
# Assignments per batch, small enough that their sums for a block of observations stay in the cache.
TOGETHER = 256
MOST = 2**21  # sums per half: 16 MiB, sorted in a fifth of a second
BINS = 2**14
FEW = 9  # p is computed exactly if at most this many draws reach the score


def p_values(
    log_p: Array,
    held_out: Indices,
    permutations: int,
    chance: np.random.Generator,
    max_sums: int = MOST,
    negligible: float = 0.0,
) -> Array:
    """Compute P[M* >= M] for each observation, (n,). M* is the published score with redrawn held-out models.

    The tested hypothesis is that training on the observation raises its log p by at most `negligible` nats. These are
    first subtracted from the models that trained on it (`lower_log_p`). A smaller effect makes p larger.

    If there are at most `permutations` + 1 assignments, p is the exact share among all of them, including the actual
    one. Otherwise p = (1 + b) / (1 + permutations), where b of `permutations` draws have M* >= M; if b is at most FEW,
    p is again the exact share. NaN if M is undefined.

    The observations of a block share the drawn assignments, which remain uniform for each observation. The number of
    terms on each side is constant. Let T be the sum of all p and S the sum of p over the models that hold out. Then M =
    log((T - S) / trained models) - log(S / models that held out) decreases in S alone, and M* >= M if S* <= S. One sum
    per assignment therefore suffices, with p taken relative to exp V. The exact share counts sums of one number from
    each repetition. If K^(L/2) exceeds `max_sums`, the result is an upper bound of the exact share (`share_below`).

    **Every p-value stays valid although b selects which ones are computed exactly.** Let p' = (1 + b) / (1 +
    permutations) be the drawn and p'' the exact p-value. For a level a of at least (1 + FEW) / (1 + permutations), b <=
    FEW implies p' <= a, so a result of at most a implies p' <= a. For a smaller a, only p'' can be at most a. Both
    events have a probability of at most a.
    """
    if negligible:
        log_p = lower_log_p(log_p, held_out, negligible)
    p = np.full(len(log_p), np.nan)
    defined = ~np.isnan(terms(log_p, held_out).score)
    has_model = ~np.isnan(log_p)
    relative, bound = _relative_densities(log_p, held_out)
    for models, group in patterns(has_model, defined):
        entries = relative[group].reshape(len(group), -1)
        below = np.zeros(len(group), np.int64)
        for columns in assignments(models, permutations, chance):
            below += np.count_nonzero(entries @ columns <= bound[group], axis=1)
        number = possible(models)
        if number <= permutations + 1:
            p[group] = below / number
            continue
        p[group] = (1 + below) / (1 + permutations)
        for row in group[below <= FEW].tolist():
            p[row] = _share_of_all(relative[row], models, float(bound[row, 0]), max_sums)
    return p


def _relative_densities(log_p: Array, held_out: Indices) -> tuple[Array, Array]:
    """Return p relative to exp V, (n, L, K), and the bound that other assignments' sums are compared with, (n, 1).

    Values that do not count are 0. The bound is the sum over the models that hold out, plus a tolerance. An assignment
    scores at least as high if its sum is at most the bound.
    """
    block_terms = terms(log_p, held_out)
    relative = relative_to(block_terms.v, log_p, ~np.isnan(log_p) & (block_terms.held_out_models > 0)[:, :, None])
    observed = np.take_along_axis(relative, held_out[:, :, None], axis=2).sum(axis=1)
    return relative, observed * (1 + TOLERANCE)


def _share_of_all(relative: Array, models: Mask, bound: float, max_sums: int = MOST) -> float:
    """Return the share of all assignments of one observation, (L, K), whose sum is at most the bound."""
    return share_below(
        [values[is_model] for values, is_model in zip(relative, models, strict=True) if is_model.any()], bound, max_sums
    )


def least_found(log_p: Array, held_out: Indices, level: float, negligible: float = 0.0) -> Array:
    """Find the rise in log p, in nats, at which each observation's p-value would reach `level`, (n,).

    The rise is added to the models that trained on the observation according to `held_out`, assuming no memorisation so
    far. Accurate to 1 %. inf if no rise suffices because no p-value can be that small. NaN if the score is undefined or
    a model assigns the observation probability 0.
    """
    block_terms = terms(log_p, held_out)
    has_model = ~np.isnan(log_p)
    # neither depends on the models that trained on the observation
    v = block_terms.v
    bound = _relative_densities(log_p, held_out)[1]
    is_counted = has_model & (block_terms.held_out_models > 0)[:, :, None]
    is_trained = np.arange(log_p.shape[2]) != held_out[:, :, None]
    rises = np.full(len(log_p), np.nan)
    is_defined = ~np.isnan(block_terms.score) & ~(log_p == -np.inf).any(axis=(1, 2))
    for row in np.flatnonzero(is_defined).tolist():
        densities = log_p[row]

        def passes(nats: float, row: int = row, densities: Array = densities) -> bool:
            relative = relative_to(
                v[row : row + 1], (densities + nats * is_trained[row])[None], is_counted[row : row + 1]
            )[0]
            return _share_of_all(relative, has_model[row], float(bound[row, 0])) <= level

        # Large enough that every other assignment has a larger sum, unless no rise suffices.
        low, high = 0.0, float(np.nanmax(densities) - np.nanmin(densities) + np.log(2 * densities.size))
        if not passes(high):
            rises[row] = np.inf
            continue
        while high - low > 0.01 * (high + negligible):
            middle = (low + high) / 2
            low, high = (low, middle) if passes(middle) else (middle, high)
        rises[row] = high + negligible
    return rises


def smallest_p_value(repetitions: int, folds: int) -> float:
    """Return the smallest p-value that an observation can have: 1 / K^L, the share of the actual assignment.

    With Benjamini and Hochberg's correction over n observations, at least n p / q observations must have this p-value
    for any to be identified at level q.
    """
    return float(1 / folds**repetitions)


def reassign_models(log_p: Array, held_out: Indices, chance: np.random.Generator) -> NDArray[np.int64]:
    """Redraw the models (n, L) that hold each observation out, among the existing models of the repetition.

    A repetition stays unchanged if the model that held the observation out is missing.
    """
    has_model = ~np.isnan(log_p)
    order = np.argsort(~has_model, axis=2, kind="stable")
    count = has_model.sum(axis=2)
    position = (chance.random(held_out.shape) * count).astype(np.int64)
    new_models = np.take_along_axis(order, position[:, :, None], axis=2)[:, :, 0]
    has_own_model = np.take_along_axis(has_model, held_out[:, :, None], axis=2)[:, :, 0]
    return np.where(has_own_model, new_models, held_out)


def relative_to(v: Array, log_p: Array, is_counted: Mask) -> Array:
    """Compute p / exp V, (n, L, K), with 0 where `is_counted` is false.

    No term of V exceeds L, so values are clipped at 2 L. V = -inf is a sum of zeros; every p above 0 is then clipped.
    """
    ceiling = 2.0 * log_p.shape[1]
    impossible = v == -np.inf
    with np.errstate(invalid="ignore", over="ignore"):
        relative = np.exp(log_p - v[:, None, None])
    if impossible.any():
        relative[impossible] = np.where(log_p[impossible] == -np.inf, 0.0, ceiling)
    return np.where(is_counted, np.minimum(relative, ceiling), 0.0)


def patterns(has_model: Mask, defined: Mask) -> Iterator[tuple[Mask, NDArray[np.int64]]]:
    """Group the `defined` observations by their existing models (L, K). Usually there is one group."""
    rows = np.flatnonzero(defined)
    if not len(rows):
        return
    if (has_model[rows] == has_model[rows[0]]).all():
        yield has_model[rows[0]], rows
        return
    packed = np.packbits(has_model[rows].reshape(len(rows), -1), axis=1)
    _, first, group_numbers = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    for number, index in enumerate(first):
        yield has_model[rows[index]], rows[group_numbers.reshape(-1) == number]


def possible(models: Mask) -> int:
    """Count the assignments of one model to each repetition that has models."""
    return math.prod(int(count) for count in models.sum(axis=1) if count)


def assignments(models: Mask, permutations: int, chance: np.random.Generator) -> Iterator[Array]:
    """Yield blocks (L K, B) of a 0/1 matrix, one column per assignment, with 1 at each repetition's chosen model.

    All assignments if there are at most `permutations` + 1, else `permutations` uniform draws.
    """
    folds = models.shape[1]
    model_lists = [np.flatnonzero(repetition) for repetition in models]
    counts = [len(models_of_repetition) for models_of_repetition in model_lists]
    number = possible(models)
    last = number if number <= permutations + 1 else permutations
    for start in range(0, last, TOGETHER):
        numbers = np.arange(start, min(start + TOGETHER, last))
        matrix = np.zeros((models.size, len(numbers)))
        digits = numbers
        for repetition, (models_of_repetition, count) in enumerate(zip(model_lists, counts, strict=True)):
            if not count:
                continue
            if number <= permutations + 1:
                digits, positions = digits // count, digits % count
            else:
                positions = chance.integers(0, count, len(numbers))
            matrix[repetition * folds + models_of_repetition[positions], np.arange(len(numbers))] = 1.0
        yield matrix


def share_below(values: Sequence[Array], bound: float, max_sums: int = MOST) -> float:
    """Return the share of sums of one value from each list that are at most `bound`. Values are not negative.

    Exact up to rounding of the sums (about L 2^-53 of the bound) if each half has at most `max_sums` sums. Otherwise
    the result is `binned_share`, which is never below the exact share, and is at most the exact share for a bound that
    is larger by L / BINS of its distance from the smallest sum. 1 if there are no lists.
    """
    # Subtract each list's smallest value: the remaining slack is small if few sums are below the bound.
    smallest = [values_of_list.min() for values_of_list in values]
    slack = bound - math.fsum(smallest)
    if slack < 0:
        return 0.0
    # Lists of equal values have no influence.
    above = [
        values_of_list - minimum
        for values_of_list, minimum in zip(values, smallest, strict=True)
        if (values_of_list > minimum).any()
    ]
    sizes = [len(values_of_list) for values_of_list in above]
    relevant = sorted((values_of_list[values_of_list <= slack] for values_of_list in above), key=len, reverse=True)
    halves: list[list[Array]] = [[], []]
    for values_of_list in relevant:  # add the longest list to the half with fewer sums
        halves[math.prod(map(len, halves[0])) > math.prod(map(len, halves[1]))].append(values_of_list)
    first, second = (half_sums(half, slack, max_sums) for half in halves)
    if first is None or second is None:
        return binned_share(relevant, sizes, slack)
    few, many = sorted((first, second), key=len)
    many.sort()
    below = int(np.searchsorted(many, np.sort(slack - few), side="right").sum())
    return below / math.prod(sizes)  # a quotient of integers is correctly rounded


def half_sums(lists: Sequence[Array], slack: float, max_sums: int) -> Array | None:
    """Return the sums of one value from each list that are at most `slack`, (sums,). None if more than `max_sums`."""
    sums = np.zeros(1)
    for values in lists:
        if len(sums) * len(values) > max_sums:
            return None
        sums = (sums[:, None] + values).reshape(-1)
        sums = sums[sums <= slack]
    return sums


def binned_share(lists: Sequence[Array], sizes: Sequence[int], slack: float, bins: int = BINS) -> float:
    """Return the share of sums that are at most `slack` after rounding each value down to a multiple of slack / bins.

    `lists` contains the values of each list that are at most `slack`, and `sizes` the original list lengths. Rounded
    sums do not exceed the sums, so the share is at least the exact one. A sum of L values loses less than L slack /
    bins, so no sum above slack (1 + L / bins) counts. The distribution of rounded sums is built list by list in L K
    `bins` steps.
    """
    shares = np.zeros(bins + 1)
    shares[0] = 1.0
    for values, size in zip(lists, sizes, strict=True):  # the order does not matter, since every size divides once
        if slack > 0:
            steps = np.floor(values * (bins / slack)).astype(np.int64)
        else:
            steps = np.zeros(len(values), np.int64)
        shifted_shares = np.zeros(bins + 1)
        for step in np.minimum(steps, bins).tolist():
            shifted_shares[step:] += shares[: bins + 1 - step]
        shares = shifted_shares / size
    return float(shares.sum())
