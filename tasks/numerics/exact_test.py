"""An exact test, for each record, of whether training on it changes the models' scores for it.

Each record is in the training data of exactly half of the models, and this half is drawn uniformly from all halves. If
a record has no influence on its scores, they do not depend on the half. The rank of the observed statistic among those
of all halves is therefore a p-value, without any model of the scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from math import ceil, comb

import numpy as np
from numpy.typing import NDArray

from tasks.numerics import seeds
from tasks.numerics.ranks import check_finite
from tasks.numerics.t_test import t_rate

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]
MOST_HALVES = 20_000  # up to this number, all halves are enumerated; 16 models have 12,870
FEW = 9  # if at most this many drawn sets reach a record's sum, its p-value is computed from more sets
SPARE = 2  # factor on the number of sets that would suffice if none equalled the record's own set by chance
AT_ONCE = 2**22  # sums in memory at a time
RECORDS_AT_ONCE = 2**16  # 134 MB with 256 models; the same sets are drawn again for every block of records
ROUNDING = 1e-9  # relative to the sum of absolute scores; smaller differences of sums are rounding errors


@dataclass(frozen=True)
class Sets:
    """The sets of models with which an observed set is compared: either all sets or a number of random ones."""

    has_all_sets: bool
    count: int

    @property
    def smallest_p_value(self) -> float:
        """The smallest possible p-value.

        The observed set is one of all sets, or is added to the drawn ones.
        """
        return 1 / self.count if self.has_all_sets else 1 / (1 + self.count)


def _choose_sets(models: int, members: int, draws: int) -> Sets:
    """Return all sets of `members` models if there are at most 20,000 or at most `draws`, otherwise random ones."""
    sets = comb(models, members)
    if sets <= max(MOST_HALVES, draws):
        return Sets(True, sets)
    return Sets(False, draws)


def enough_draws(level: float, tests: int) -> int:
    """Return the number of random sets with which a single record among `tests` is detectable at the adjusted level."""
    return ceil(SPARE * tests / level)


def randomisation_p_values(
    scores: Array, member: Mask, draws: int, seed: int, level: float | None = None, tests: int | None = None
) -> Array:
    """Return each record's p-value (records,) for higher scores from models that were trained on it.

    `scores` and `member` are (models, records). The statistic is the sum of the scores of the models that were trained
    on the record. With k members among M models, it is compared with that of all sets of k models, or of itself and
    `draws` random sets (`_choose_sets`): p is the fraction of sets whose sum is at least as large. The test is
    one-sided, and p is at least 1 / sets. It is NaN if all models, or none, were trained on the record. Raises
    ValueError for scores that are not finite. Fisher 1935; Phipson & Smyth 2010 for drawn sets.

    With a `level`, records that at most FEW of the drawn sets reach are compared with `enough_draws` sets instead, so
    that a single one can be detected among `tests` (default: all tested records). Both p-values are valid, and so is
    the selected one: it is at most a >= (1 + FEW) / (1 + draws) only if the first is, and smaller only if the second
    is.
    """
    check_finite(scores, "exact test")
    p_values = np.full(scores.shape[1], np.nan)
    members = member.sum(axis=0)
    tested = np.flatnonzero((members > 0) & (members < len(scores)))
    p_values[tested] = _p_values(scores, member, tested, draws, seed)
    if level is None:
        return p_values
    more = max(draws, enough_draws(level, len(tested) if tests is None else tests))
    small = tested[p_values[tested] <= (1 + FEW) / (1 + draws)]
    few = []
    for record in small.tolist():
        if not _choose_sets(len(scores), int(members[record]), draws).has_all_sets:
            few.append(record)
    if few and more > draws:
        more_seed = seeds.derive(seed, "more sets of models")
        p_values[few] = _p_values(scores, member, np.array(few), more, more_seed)
    return p_values


def reduced_p_values(
    scores: Array, member: Mask, p_values: Array, less: Array | float, draws: int, seed: int, level: float
) -> Array:
    """Return p-values (records,) for effects of at most `less`. They are at least `p_values`, those for no effect.

    The scores of models trained on a record are reduced by `less`, which is one number or one per record. Records whose
    p-value is above the level are not tested again and get 1.
    """
    reduced = np.where(np.isnan(p_values), np.nan, 1.0)
    small = np.flatnonzero(p_values <= level)
    if len(small):
        member = member[:, small]
        tests = int(np.count_nonzero(~np.isnan(p_values)))
        scores = scores[:, small] - np.broadcast_to(less, p_values.shape)[small] * member
        new_p_values = randomisation_p_values(scores, member, draws, seed, level, tests)
        reduced[small] = np.maximum(new_p_values, p_values[small])
    return reduced


def _p_values(scores: Array, member: Mask, records: Rows, draws: int, seed: int) -> Array:
    """Return the p-values of these records, which some, but not all, models were trained on."""
    members = member.sum(axis=0)[records]
    p_values = np.full(len(records), np.nan)
    for count in np.unique(members):
        places = np.flatnonzero(members == count)
        for start in range(0, len(places), RECORDS_AT_ONCE):
            block = places[start : start + RECORDS_AT_ONCE]
            columns = records[block]
            p_values[block] = _p_values_of_size(scores[:, columns], member[:, columns], int(count), draws, seed)
    return p_values


def _p_values_of_size(scores: Array, member: Mask, count: int, draws: int, seed: int) -> Array:
    """Return the p-values of records that `count` models were trained on."""
    models, records = scores.shape
    # Centring shifts all sums by the same amount and reduces rounding errors.
    centred_scores = scores - scores.mean(axis=0)
    observed = (centred_scores * member).sum(axis=0)
    threshold = observed - ROUNDING * np.abs(centred_scores).sum(axis=0)
    sets = _choose_sets(models, count, draws)
    larger = np.zeros(records, dtype=np.int64)
    at_once = max(1, AT_ONCE // max(models, records))
    for batch in _sets(models, count, 0 if sets.has_all_sets else draws, seed, at_once):
        larger += (batch @ centred_scores >= threshold).sum(axis=0)
    # The observed set is one of all sets, regardless of rounding.
    if sets.has_all_sets:
        return np.maximum(larger, 1) / sets.count
    return (1 + larger) / (1 + sets.count)


def smallest_p_value(models: int, draws: int) -> float:
    """Return the smallest possible p-value of a record that half of the models were trained on."""
    return _choose_sets(models, models // 2, draws).smallest_p_value


def smallest_p_value_among(models: int, draws: int, level: float, tests: int) -> float:
    """Return the smallest possible p-value of a record that half of the models were trained on.

    More sets are drawn if `tests` requires it.
    """
    return smallest_p_value(models, max(draws, enough_draws(level, tests)))


def detection_rate(effect: float, models: int, draws: int, level: float, tests: int) -> float:
    """Return the fraction of audits that detect one record among `tests`, with an effect in standard deviations.

    The exact test has the power of a t-test for normal scores, and no power if its smallest p-value is too large.
    """
    if smallest_p_value_among(models, draws, level, tests) * tests > level:
        return 0.0
    shift = effect * models**0.5 / 2
    return t_rate(shift, models - 2, level / tests)


def _sets(models: int, count: int, draws: int, seed: int, at_once: int) -> Iterator[Array]:
    """Yield sets of `count` models as rows of zeros and ones, (sets, models), in batches.

    If `draws` is 0, all sets are yielded.
    """
    if draws:
        stream = seeds.generator(seed, "sets of models", count)
        first = (np.arange(models) < count).astype(np.float64)
        for start in range(0, draws, at_once):
            yield stream.permuted(np.tile(first, (min(at_once, draws - start), 1)), axis=1)
        return
    all_combinations = combinations(range(models), count)
    while batch := list(islice(all_combinations, at_once)):
        sets = np.zeros((len(batch), models))
        np.put_along_axis(sets, np.array(batch), 1.0, axis=1)
        yield sets
