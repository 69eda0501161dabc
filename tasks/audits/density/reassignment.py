"""Scores with other models drawn to hold the observation out, and their p-values: arrays in, arrays out.

Which of a repetition's K models holds an observation out is drawn evenly. Where nothing is memorised the models answer
alike whichever it was, so that every other draw could as well have been the one there was, and the share of draws that
score at least as high is an exact p-value: of each observation on its own, whatever models differ by, and however few
there are. A repetition whose model that held it out is missing says nothing of V in any draw, and its others stay where
they are; of the rest the draw is among those that are there, which are evenly likely given that one of them it was.

A p-value from B draws is at least 1 / (1 + B), too much to find one observation among 60,000. Those that few draws
reach have the exact share of all K^L assignments instead, which is that of the sums of one value of each of L lists
that are no greater than a bound (`share_below`). There are 10^10 of ten by ten, and not every one is looked at. All
values are above 0 or 0, so that of any value that is too large by itself, with the smallest of the other lists, no sum
counts. What is left is split into two halves of the lists (meeting in the middle): every sum of either half is made, at
most K^(L/2) of them, and to each of the one half the number of the other's that fit beside it is found by bisection.
That is exact, and takes K^(L/2) log K^(L/2) steps. Horowitz & Sahni 1974, "Computing partitions with applications to
the knapsack problem", section 2.

`log_p` (n, L, K) and `held_out` (n, L) are as in tasks.audits.density.memorization.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.audits.density.memorization import Array, Indices, Mask, lower_log_p, terms

# Equal sums may differ in their last places. What is closer than this counts as equal, which makes p larger if
# anything.
TOLERANCE = 1e-12
# So many assignments at a time: their sums, and those of a block's observations, stay in the cache.
TOGETHER = 256
MOST = 2**21  # sums of a half: 16 MiB, a fifth of a second to sort
BINS = 2**14
FEW = 9  # draws that score as high as an observation, at most, for its p-value to be made exact


def p_values(
    log_p: Array,
    held_out: Indices,
    permutations: int,
    chance: np.random.Generator,
    most: int = MOST,
    negligible: float = 0.0,
) -> Array:
    """P[M* >= M] of each observation, (n,), M* the published score with the models that hold it out drawn anew.

    It tests that training on the observation raises its log p by no more than `negligible` nats, of which the models
    that trained on it are first relieved (`lowered`). What raises log p by less makes p larger.

    The exact share of all assignments, the one there was among these, where there are no more of them than
    `permutations` + 1. Else p = (1 + b) / (1 + permutations), b the number of `permutations` draws with M* >= M; and
    where b is at most FEW, the exact share after all. NaN where M is undefined.

    The observations of a block share the assignments drawn, each of which is none the less even for every one of them.
    What one side gains the other loses, and either keeps its number of terms: with the sum T of all p, and S that of
    those that hold out, M = log((T - S) / trained models) - log(S / models that held out) falls with S alone, and M* >=
    M where S* <= S. So one sum an assignment is enough, of p relative to exp V; and the share is that of sums of one
    number of each repetition, which is counted without looking at each. Where K^(L/2) is above `most` numbers, what is
    found is no smaller than the exact share (`share_below`).

    **Choosing by b whose p-value is made exact leaves every p-value valid**: with the drawn p' = (1 + b) / (1 +
    permutations) and the exact p'', the one that is given is at most a level a in none but these cases. For a of at
    least (1 + FEW) / (1 + permutations) b <= FEW means that p' <= a, too, so that p' <= a in all of them; for a smaller
    a nothing but p'' can be at most a. Each of the two happens with a probability of at most a.
    """
    log_p = lower_log_p(log_p, held_out, negligible) if negligible else log_p
    p = np.full(len(log_p), np.nan)
    defined, there = ~np.isnan(terms(log_p, held_out).score), ~np.isnan(log_p)
    relative, bound = _relative_densities(log_p, held_out)
    for models, alike in patterns(there, defined):
        entries = relative[alike].reshape(len(alike), -1)
        below = np.zeros(len(alike), np.int64)
        for chosen in assignments(models, permutations, chance):
            below += np.count_nonzero(entries @ chosen <= bound[alike], axis=1)
        number = possible(models)
        if number <= permutations + 1:
            p[alike] = below / number
            continue
        p[alike] = (1 + below) / (1 + permutations)
        for row in alike[below <= FEW].tolist():
            p[row] = _share_of_all(relative[row], models, float(bound[row, 0]), most)
    return p


def _relative_densities(log_p: Array, held_out: Indices) -> tuple[Array, Array]:
    """p relative to exp V, (n, L, K), 0 where it has no say; and the sum over the models that hold out, (n, 1), but for
    rounding: an assignment scores at least as high where its sum is no greater."""
    both = terms(log_p, held_out)
    relative = relative_to(both.v, log_p, ~np.isnan(log_p) & (both.held_out_models > 0)[:, :, None])
    observed = np.take_along_axis(relative, held_out[:, :, None], axis=2).sum(axis=1)
    return relative, observed * (1 + TOLERANCE)


def _share_of_all(relative: Array, models: Mask, bound: float, most: int = MOST) -> float:
    """The share of all assignments of one observation, (L, K), whose sum is at most the bound."""
    return share_below([each[those] for each, those in zip(relative, models, strict=True) if those.any()], bound, most)


def least_found(log_p: Array, held_out: Indices, level: float, negligible: float = 0.0) -> Array:
    """How far training would have to raise log p of each observation for its p-value to be `level`, in nats, (n,).

    Were nothing of it memorised, and the model of each repetition that holds it out the one in `held_out`: the models
    that trained on it are given as much more. To within 1 % of what is found. inf where no memory is enough, since no
    p-value can be so small; NaN where the score is undefined, or a model holds the observation impossible.
    """
    both, there = terms(log_p, held_out), ~np.isnan(log_p)
    v, bound = both.v, _relative_densities(log_p, held_out)[1]  # what models say that trained on it is in neither
    counted = there & (both.held_out_models > 0)[:, :, None]
    trained = np.arange(log_p.shape[2]) != held_out[:, :, None]
    found = np.full(len(log_p), np.nan)
    known = ~np.isnan(both.score) & ~(log_p == -np.inf).any(axis=(1, 2))
    for row in np.flatnonzero(known).tolist():
        one = log_p[row]

        def passes(nats: float, row: int = row, one: Array = one) -> bool:
            relative = relative_to(v[row : row + 1], (one + nats * trained[row])[None], counted[row : row + 1])[0]
            return _share_of_all(relative, there[row], float(bound[row, 0])) <= level

        # So much that every other assignment's sum is greater, unless it is never enough.
        low, high = 0.0, float(np.nanmax(one) - np.nanmin(one) + np.log(2 * one.size))
        if not passes(high):
            found[row] = np.inf
            continue
        while high - low > 0.01 * (high + negligible):
            middle = (low + high) / 2
            low, high = (low, middle) if passes(middle) else (middle, high)
        found[row] = high + negligible
    return found


def smallest_p_value(repetitions: int, folds: int) -> float:
    """The smallest p-value that an observation can have: 1 / K^L, of the one assignment there was.

    After Benjamini and Hochberg's correction over n observations it takes at least n p / q of them at the smallest p
    to call any at level q.
    """
    return float(1 / folds**repetitions)


def reassign_models(log_p: Array, held_out: Indices, chance: np.random.Generator) -> NDArray[np.int64]:
    """Models (n, L) that hold each observation out, drawn anew among those present in its repetition.

    A repetition whose model that held it out is missing keeps it.
    """
    there = ~np.isnan(log_p)
    order = np.argsort(~there, axis=2, kind="stable")
    count = there.sum(axis=2)
    place = (chance.random(held_out.shape) * count).astype(np.int64)
    drawn = np.take_along_axis(order, place[:, :, None], axis=2)[:, :, 0]
    kept = np.take_along_axis(there, held_out[:, :, None], axis=2)[:, :, 0]
    return np.where(kept, drawn, held_out)


def relative_to(v: Array, log_p: Array, counted: Mask) -> Array:
    """p / exp V, (n, L, K); 0 where not counted. No term of V is above L; what is above 2 L is given as that.

    V = -inf is the sum of nothing but zeros: there any p above 0 is as good as another.
    """
    most = 2.0 * log_p.shape[1]
    impossible = v == -np.inf
    with np.errstate(invalid="ignore", over="ignore"):
        relative = np.exp(log_p - v[:, None, None])
    if impossible.any():
        relative[impossible] = np.where(log_p[impossible] == -np.inf, 0.0, most)
    return np.where(counted, np.minimum(relative, most), 0.0)


def patterns(there: Mask, defined: Mask) -> Iterator[tuple[Mask, NDArray[np.int64]]]:
    """Which models there are (L, K), and the observations, of those `defined`, that have these: one lot as a rule."""
    rows = np.flatnonzero(defined)
    if not len(rows):
        return
    if (there[rows] == there[rows[0]]).all():
        yield there[rows[0]], rows
        return
    packed = np.packbits(there[rows].reshape(len(rows), -1), axis=1)
    _, first, which = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    for number, at in enumerate(first):
        yield there[rows[at]], rows[which.reshape(-1) == number]


def possible(models: Mask) -> int:
    """The number of assignments: one model of each repetition that has any."""
    return math.prod(int(count) for count in models.sum(axis=1) if count)


def assignments(models: Mask, permutations: int, chance: np.random.Generator) -> Iterator[Array]:
    """Parts (L K, B) of a matrix with a column for each assignment, 1 at the model of each repetition, else 0.

    All there are where that is at most `permutations` + 1, else `permutations` drawn evenly.
    """
    folds = models.shape[1]
    known = [np.flatnonzero(repetition) for repetition in models]
    counts = [len(those) for those in known]
    number = possible(models)
    last = number if number <= permutations + 1 else permutations
    for start in range(0, last, TOGETHER):
        these = np.arange(start, min(start + TOGETHER, last))
        chosen = np.zeros((models.size, len(these)))
        digits = these
        for repetition, (those, count) in enumerate(zip(known, counts, strict=True)):
            if not count:
                continue
            if number <= permutations + 1:
                digits, place = digits // count, digits % count
            else:
                place = chance.integers(0, count, len(these))
            chosen[repetition * folds + those[place], np.arange(len(these))] = 1.0
        yield chosen


def share_below(values: Sequence[Array], bound: float, most: int = MOST) -> float:
    """The share of the sums of one of each list's values that are at most `bound`; the values are not negative.

    Exact, but for rounding of the sums (some L 2^-53 of the bound), as long as a half has at most `most` sums. Where it
    has more, it is `binned`: never below the exact share, and of a bound that is larger by at most L / BINS of
    what the bound leaves above the smallest sum. 1 where there are no lists.
    """
    # Above each list's smallest value: what is left of the bound is small where few sums are below it.
    smallest = [each.min() for each in values]
    slack = bound - math.fsum(smallest)
    if slack < 0:
        return 0.0
    # A list of equal values has no say.
    above = [each - least for each, least in zip(values, smallest, strict=True) if (each > least).any()]
    sizes = [len(each) for each in above]
    left = sorted((each[each <= slack] for each in above), key=len, reverse=True)
    halves: list[list[Array]] = [[], []]
    for each in left:  # the longest goes where there are fewer sums so far
        halves[math.prod(map(len, halves[0])) > math.prod(map(len, halves[1]))].append(each)
    first, second = (half_sums(half, slack, most) for half in halves)
    if first is None or second is None:
        return binned_share(left, sizes, slack)
    few, many = sorted((first, second), key=len)
    many.sort()
    below = int(np.searchsorted(many, np.sort(slack - few), side="right").sum())
    return below / math.prod(sizes)  # of whole numbers, so that the quotient is the nearest there is


def half_sums(lists: Sequence[Array], slack: float, most: int) -> Array | None:
    """The sums of one of each list's values that are at most `slack`, (sums,); None where they may be above `most`."""
    sums = np.zeros(1)
    for each in lists:
        if len(sums) * len(each) > most:
            return None
        sums = (sums[:, None] + each).reshape(-1)
        sums = sums[sums <= slack]
    return sums


def binned_share(lists: Sequence[Array], sizes: Sequence[int], slack: float, bins: int = BINS) -> float:
    """The share of sums that are at most `slack` where each value is first rounded down to a multiple of slack / bins.

    `lists` are what of each list's values is at most `slack`, and `sizes` how many values there were. Rounded sums
    are no greater than the sums, so that all of these that fit are counted: the share is no smaller than the exact one.
    A sum of L values loses less than L slack / bins, so that none is counted that is above slack (1 + L / bins). In L K
    `bins` steps, the distribution of the rounded sums list by list.
    """
    shares = np.zeros(bins + 1)
    shares[0] = 1.0
    for each, size in zip(lists, sizes, strict=True):  # in any order: every size divides once
        steps = np.floor(each * (bins / slack)).astype(np.int64) if slack > 0 else np.zeros(len(each), np.int64)
        moved = np.zeros(bins + 1)
        for step in np.minimum(steps, bins).tolist():
            moved[step:] += shares[: bins + 1 - step]
        shares = moved / size
    return float(shares.sum())
