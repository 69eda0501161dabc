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
Marks = NDArray[np.uint8]
MOST_HALVES = 20_000  # up to this number, all halves are enumerated; 16 models have 12,870
FEW = 9  # if at most this many drawn sets reach a record's sum, its p-value is computed from more sets
GROWTH = 10  # factor on the number of sets from one stage to the next
SPARE = 2  # factor on the number of sets that would suffice if none equalled the record's own set by chance
ALWAYS = 2**28  # sums of a further stage that are computed even if its records are already found
SETS_AT_ONCE = 2**8 - 1  # so that a count of them fits into a byte
COLUMNS_AT_ONCE = 2**9  # records whose sums over SETS_AT_ONCE sets fit into a processor's cache, 1 MB
DRAWN_AT_ONCE = 2**13  # sets, or rows of coins
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

    With a `level`, records that few drawn sets reach are compared with more sets (`_refine`), so that a single one can
    be detected among `tests` (default: all tested records) by Benjamini & Hochberg's procedure at this level.
    """
    check_finite(scores, "exact test")
    members = member.sum(axis=0)
    tested = np.flatnonzero((members > 0) & (members < len(scores)))
    p_values = np.full(scores.shape[1], np.nan)
    p_values[tested] = _test(_Reduced(scores, member), tested, draws, seed, level, tests)
    return p_values


def reduced_p_values(
    scores: Array, member: Mask, p_values: Array, less: Array | float, draws: int, seed: int, level: float
) -> Array:
    """Return p-values (records,) for effects of at most `less`.

    The scores of models trained on a record are reduced by `less`, which is one number or one per record. Records whose
    p-value for no effect, in `p_values`, is above the level are not tested again and get 1. The others are compared
    with the same sets again, so that their p-values of a stage cannot decrease (a test that ends early may still have
    larger ones at the end). Hence all records that Benjamini & Hochberg's procedure finds with the reduced scores are
    also found without.
    """
    reduced = np.where(np.isnan(p_values), np.nan, 1.0)
    small = np.flatnonzero(p_values <= level)
    if len(small):
        tests = int(np.count_nonzero(~np.isnan(p_values)))
        less_by_record = np.broadcast_to(less, p_values.shape)
        reduced[small] = _test(_Reduced(scores, member, less_by_record), small, draws, seed, level, tests)
    return reduced


@dataclass(frozen=True, eq=False)
class _Reduced:
    """Scores (models, records), of which `less` (records,) is subtracted for the models trained on a record."""

    scores: Array
    member: Mask
    less: Array | None = None

    def columns(self, records: Rows) -> tuple[Array, Mask]:
        """Return the reduced scores of these records, and which models were trained on them."""
        scores = self.scores[:, records]
        member = self.member[:, records]
        if self.less is not None:
            scores -= self.less[records] * member
        return scores, member


def _test(
    reduced: _Reduced, records: Rows, draws: int, seed: int, level: float | None = None, tests: int | None = None
) -> Array:
    """Return the p-values of these records, which some, but not all, models were trained on."""
    p_values = _p_values(reduced, records, draws, seed)
    if level is None or not len(records):
        return p_values
    _refine(p_values, reduced, records, draws, seed, level, len(records) if tests is None else tests)
    return p_values


def _refine(p_values: Array, reduced: _Reduced, records: Rows, draws: int, seed: int, level: float, tests: int) -> None:
    """Compute the p-values of records that few drawn sets reach from more sets, in stages. Changes `p_values`.

    Stage s has n(s) new sets, GROWTH times as many as the stage before, up to `enough_draws`. Its p-value is p(s), and
    its bound is b(s) = (1 + FEW) / (1 + n(s)). A record ends at the first stage with p(s) > b(s) or with all sets, or
    at the last one, with the p-value min(p(s), b(s - 1)). This is valid because each p(s) is: if b(s) <= a < b(s - 1),
    then a p-value of at most a is only possible in stage s or later, and stage s is only left with p(s) <= b(s) <= a.
    Hence its probability is at most that of p(s) <= a. Besag & Clifford 1991, "Sequential Monte Carlo p-values", also
    stop when enough sets reach the observed sum; their p-values would need the sets of each record one after another.

    Without effects, about tests (1 + FEW) / n(s) records enter the next stage, so each stage takes about
    (1 + FEW) GROWTH sums per record, whatever the number of records. If many records have effects, R of them may enter.
    All are found by Benjamini & Hochberg's procedure as soon as tests b(s) <= level R, because no further stage can
    raise a p-value above b(s). If another stage took more sums than the first one (and ALWAYS), they then end with the
    p-value b(s). This is an upper bound of the p-value at the last stage, so it is valid, and exactly the same records
    are found. Otherwise R < tests b(s) / level, and the next stage takes less than (1 + FEW) GROWTH / level sums per
    record.
    """
    members = reduced.member.sum(axis=0)[records]
    is_open = np.ones(len(records), dtype=bool)
    sets = draws
    stage = 0
    while sets < enough_draws(level, tests):
        bound = (1 + FEW) / (1 + sets)
        for count_of_members in np.unique(members):
            if _choose_sets(len(reduced.scores), int(count_of_members), sets).has_all_sets:
                is_open[members == count_of_members] = False  # p is the fraction of all sets
        is_open &= p_values <= bound
        count = int(np.count_nonzero(is_open))
        more = min(GROWTH * sets, enough_draws(level, tests))
        is_costly = count * more > max(tests * draws, ALWAYS)
        if is_costly and tests * bound <= level * count * (1 - ROUNDING):
            p_values[is_open] = bound
            return
        if not count:
            return
        stage += 1
        of_stage = _p_values(reduced, records[is_open], more, seeds.derive(seed, "more sets of models", stage))
        p_values[is_open] = np.minimum(of_stage, bound)
        sets = more


def _p_values(reduced: _Reduced, records: Rows, draws: int, seed: int) -> Array:
    """Return the p-values of these records from `draws` sets, or from all."""
    members = reduced.member.sum(axis=0)[records]
    p_values = np.full(len(records), np.nan)
    for count in np.unique(members):
        places = np.flatnonzero(members == count)
        for start in range(0, len(places), RECORDS_AT_ONCE):
            block = places[start : start + RECORDS_AT_ONCE]
            p_values[block] = _p_values_of_size(*reduced.columns(records[block]), int(count), draws, seed)
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
    for batch in _sets(models, count, 0 if sets.has_all_sets else draws, seed, SETS_AT_ONCE):
        for start in range(0, records, COLUMNS_AT_ONCE):
            columns = slice(start, start + COLUMNS_AT_ONCE)
            is_larger = batch @ centred_scores[:, columns] >= threshold[columns]
            larger[columns] += np.add.reduce(is_larger.view(np.uint8), axis=0, dtype=np.uint8)
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
        draw = _draw_halves if 2 * count == models else _draw_sets
        for sets in draw(stream, models, count, draws):
            for start in range(0, len(sets), at_once):
                yield sets[start : start + at_once].astype(np.float64)
        return
    all_combinations = combinations(range(models), count)
    while batch := list(islice(all_combinations, at_once)):
        enumerated = np.zeros((len(batch), models))
        np.put_along_axis(enumerated, np.array(batch), 1.0, axis=1)
        yield enumerated


def _draw_sets(stream: np.random.Generator, models: int, count: int, draws: int) -> Iterator[Marks]:
    """Yield random sets of `count` models, (sets, models), in batches."""
    first = (np.arange(models) < count).astype(np.uint8)
    for start in range(0, draws, DRAWN_AT_ONCE):
        yield stream.permuted(np.tile(first, (min(DRAWN_AT_ONCE, draws - start), 1)), axis=1)


def _draw_halves(stream: np.random.Generator, models: int, count: int, draws: int) -> Iterator[Marks]:
    """Yield what `_draw_sets` yields if `count` is half of the models, in a fifth of the time.

    A fair coin is flipped for each model. If half of the coins show heads, as in 1 of 20 rows of 256 coins, they are a
    random half.
    """
    words = -(-models // 64)
    is_used = np.packbits(np.arange(64 * words) < models)
    while draws:
        flips = np.frombuffer(stream.bytes(DRAWN_AT_ONCE * 8 * words), dtype=np.uint8).reshape(-1, 8 * words) & is_used
        heads = np.bitwise_count(flips.view(np.uint64)).sum(axis=1)
        halves = np.unpackbits(flips[heads == count][:draws], axis=1, count=models)
        draws -= len(halves)
        yield halves
