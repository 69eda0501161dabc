"""Ranks of scores: areas under curves, p-values, exposures and false discovery control."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
ITEMS_AT_ONCE = 2**14  # columns whose ties are counted at a time, so that their sorted copies stay small


def area_under_curve(positive: Array, negative: Array) -> float:
    """Return P[a value of `positive` is above one of `negative`], counting ties half: the area under the ROC curve.

    This is Mann & Whitney's U as a fraction of all pairs. Neither sample may be empty.
    """
    return area_of_ascending(np.sort(positive), negative)


def area_of_ascending(positive: Array, negative: Array) -> float:
    """Return `area_under_curve` of an ascending `positive`. It takes the least time if `negative` is ascending, too."""
    not_above = np.searchsorted(positive, negative, side="right")
    below = not_above
    if np.any(positive[np.maximum(not_above - 1, 0)] == negative):  # ties
        below = np.searchsorted(positive, negative, side="left")
    return float((len(positive) - not_above + (not_above - below) / 2).mean() / len(positive))


def check_finite(scores: Array | Sequence[Array], label: str) -> None:
    """Raise ValueError if any score, of an array or of several, is NaN or infinite.

    Comparisons with such a score would count as the strongest evidence.
    """
    invalid_count = 0
    size = 0
    for part in np.atleast_2d(scores) if isinstance(scores, np.ndarray) else scores:
        invalid_count += int(np.count_nonzero(~np.isfinite(part)))
        size += part.size
    if invalid_count:
        raise ValueError(
            f"{label}: {invalid_count} of {size} scores are NaN or infinite; scores must be finite numbers"
        )


def rank_p_value(scores: Array) -> float:
    """Return the fraction of scores (members,) that are at least the first one, which is itself counted.

    Ties count as larger (the worst rank), so the value is at least 1 / members. Raises ValueError for NaN. This is the
    p-value of a Monte Carlo test: Davison & Hinkley 1997, "Bootstrap Methods and their Application", eq. 4.11.
    """
    if np.isnan(scores).any():
        raise ValueError(f"{np.count_nonzero(np.isnan(scores))} of {len(scores)} scores are NaN, and have no rank")
    return float(np.count_nonzero(scores >= scores[0]) / len(scores))


def share_below(scores: Array) -> float:
    """Return the fraction of members below the first score, which is itself a member.

    Ties, including the score itself, count half. This is the mid-rank. If the first score has the same distribution as
    the others, it is 0.5 on average, however many ties there are.
    """
    lower = np.count_nonzero(scores < scores[0])
    equal = np.count_nonzero(scores == scores[0])
    return float((lower + equal / 2) / len(scores))


def share_tied(scores: Array) -> Array:
    """Return the fraction of pairs with equal scores, along the first axis: 0 if all differ, 1 if all are equal.

    `scores` has shape (members, ...), and the result has the remaining axes. It is NaN for fewer than two members.
    """
    members = len(scores)
    ordered = np.sort(scores.reshape(members, -1), axis=0)
    columns = ordered.shape[1]
    # Equal scores get the same number; a column's numbers start at its index times `members`.
    numbers = np.zeros(ordered.shape, dtype=np.int64)
    numbers[1:] = np.cumsum(ordered[1:] != ordered[:-1], axis=0)
    numbers += members * np.arange(columns)
    alike = np.bincount(numbers.ravel(), minlength=members * columns).reshape(columns, members).astype(np.float64)
    equal = (alike * (alike - 1) / 2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Array = equal / np.float64(members * (members - 1) / 2)
    return share.reshape(scores.shape[1:])


def item_ties(scores: Array) -> Array:
    """Return the fraction of pairs with equal scores for each item, (items,), given scores (models, items).

    It is the larger of two fractions: that of pairs of models that are equal for the item, and the mean over models of
    that of pairs of items that are equal for one model. A constant output makes the second large even if models differ.
    NaN equals nothing.
    """
    models, items = scores.shape
    within = float(np.mean([share_tied(of_model) for of_model in scores])) if items > 1 else 0.0
    between = np.zeros(items)
    if models > 1:
        for start in range(0, items, ITEMS_AT_ONCE):
            block = slice(start, start + ITEMS_AT_ONCE)
            between[block] = share_tied(scores[:, block])
    larger: Array = np.maximum(between, within)
    return larger


def exposure(p_value: float) -> float:
    """Return log2 |R| - log2 rank, in bits: by how much a search among |R| candidates is reduced.

    The rank divided by |R| is the p-value. The result is 0 bits for the last rank and log2 |R| for the first (22.1
    among 4,457,400 glyphs). Carlini et al. 2019, "The Secret Sharer: Evaluating and Testing Unintended Memorization in
    Neural Networks", section 4, the definition of exposure.
    """
    return -math.log2(p_value)


def false_discovery_control(p_values: ArrayLike, dependent: bool = False) -> Array:
    """Return Benjamini-Hochberg adjusted p-values, in the given order. NaN (no test) is kept and not counted.

    adjusted_(i) = min over j >= i of m p_(j) / j, at most 1, for the m p-values in ascending order. Rejecting those
    that are at most q keeps the expected fraction of false rejections at q. Benjamini & Hochberg 1995. For p-values
    with arbitrary dependence, they are larger by the factor 1 + 1/2 + ... + 1/m: Benjamini & Yekutieli 2001, theorem
    1.3.
    """
    values = np.asarray(p_values, dtype=np.float64)
    tested = ~np.isnan(values)
    if np.any((values[tested] < 0) | (values[tested] > 1)):
        raise ValueError("p-values must lie between 0 and 1")
    order = np.argsort(values[tested])
    ranks = np.arange(1.0, len(order) + 1)
    ascending = values[tested][order] * (len(order) / ranks)
    if dependent:
        ascending *= np.sum(1 / ranks)
    in_order = np.empty(len(order))
    in_order[order] = np.minimum(np.minimum.accumulate(ascending[::-1])[::-1], 1.0)
    adjusted = np.full(values.shape, np.nan)
    adjusted[tested] = in_order
    return adjusted
