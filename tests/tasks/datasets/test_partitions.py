"""Folds of a partition: of even sizes, by a seed, and every partition as likely as any other."""

from __future__ import annotations

import hashlib
from itertools import islice

import numpy as np
import pytest
from scipy import stats

from tasks.training.density_config import fold_of, number_below, released_fold_of, shuffle_rows, sync_rng_numbers


@pytest.mark.parametrize(("rows", "folds"), [(10, 5), (11, 5), (14, 5), (7, 7), (3, 1), (60_000, 10)])
def test_every_row_is_in_one_of_folds_of_even_sizes(rows: int, folds: int) -> None:
    found = fold_of(3, rows, folds)
    assert (rows,) == found.shape
    assert (0, folds - 1) == (found.min(), found.max())
    sizes = np.bincount(found, minlength=folds)
    assert rows == sizes.sum()
    assert {rows // folds, -(-rows // folds)} == set(sizes.tolist())


def test_a_partition_is_its_seeds() -> None:
    assert fold_of(4, 500, 10).tolist() == fold_of(4, 500, 10).tolist()
    different = [(fold_of(4, 500, 10) != fold_of(seed, 500, 10)).mean() for seed in (0, 5, 6)]
    # Of two partitions drawn apart, nine rows in ten are in another fold.
    assert all(0.8 < share < 1 for share in different)


def test_stored_trainings_left_out_these_rows() -> None:
    # What a training left out is known by the partition's seed alone: the partition of a seed must never change.
    assert fold_of(1, 10, 3).tolist() == [1, 2, 2, 0, 0, 1, 0, 2, 0, 1]


def test_every_row_is_as_often_in_any_fold() -> None:
    rows, folds, partitions = 12, 4, 4000
    found = np.stack([fold_of(seed, rows, folds) for seed in range(partitions)])
    counts = np.stack([np.bincount(column, minlength=folds) for column in found.T])  # (rows, folds)
    # Of every row, with a Bonferroni correction: the rows' counts hang together.
    assert min(stats.chisquare(row).pvalue for row in counts) > 0.01 / rows


def test_every_partition_is_as_likely_as_any_other() -> None:
    # Six rows, two in each of three folds: 90 partitions.
    drawn = [tuple(fold_of(seed, 6, 3).tolist()) for seed in range(9000)]
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == 90
    assert 0.01 < stats.chisquare(counts).pvalue < 0.99


def test_a_larger_fold_may_be_any_row_s() -> None:
    # Of five rows in two folds, the larger is always fold 0, and any row is in it three times of five.
    inside = np.mean([fold_of(seed, 5, 2) == 0 for seed in range(4000)], axis=0)
    assert np.abs(inside - 3 / 5).max() < 4 * np.sqrt(0.6 * 0.4 / 4000)


@pytest.mark.parametrize(("rows", "folds"), [(10, 11), (10, 0), (0, 1), (5, -1)])
def test_more_folds_than_rows_or_none_are_refused(rows: int, folds: int) -> None:
    with pytest.raises(ValueError, match=f"folds is {folds}; it must be from 1 to the number of rows, {rows}"):
        fold_of(0, rows, folds)


def test_the_generator_draws_the_packages_numbers() -> None:
    assert list(islice(sync_rng_numbers(123456), 5)) == [959852049, 2314333085, 2255782734, 2921461239, 1024197102]


def test_numbers_below_a_bound_and_shuffled_places_are_the_packages() -> None:
    drawn = sync_rng_numbers(123456)
    assert [number_below(5, drawn) for _ in range(5)] == [4, 0, 4, 4, 2]
    assert shuffle_rows(5, 123456) == [2, 3, 0, 1, 4]


def test_a_number_of_an_incomplete_round_is_drawn_again() -> None:
    # Of 3 there are 2^32 / 3 rounds and 1 left over.
    assert number_below(3, iter([2**32 - 1, 5])) == 2
    assert number_below(3, iter([2**32 - 2, 5])) == 2


@pytest.mark.parametrize(
    ("rows", "repetition", "digest"),
    [
        (60_000, 0, "39154e600a156f65"),
        (60_000, 9, "cef5bdcbff57e6e8"),
        (50_000, 0, "85af8d8588154ce1"),
        (50_000, 9, "3f77af030c8c1ce1"),
        (162_770, 0, "9b9f3e9f27608980"),
    ],
)
def test_folds_of_the_papers_data_are_the_released_codes(rows: int, repetition: int, digest: str) -> None:
    found = released_fold_of(repetition, rows)
    assert np.int32 == found.dtype
    assert digest == hashlib.sha256(found.tobytes()).hexdigest()[:16]
    assert [rows // 10] * 10 == np.bincount(found).tolist()


def test_of_folds_of_unequal_sizes_the_first_are_the_longer() -> None:
    assert np.bincount(released_fold_of(0, 1437)).tolist() == [144] * 7 + [143] * 3
    assert released_fold_of(0, 10).tolist() == [3, 4, 5, 2, 9, 8, 0, 6, 7, 1]
    assert released_fold_of(9, 10).tolist() == [5, 0, 7, 3, 2, 9, 6, 1, 8, 4]


def test_what_is_no_partition_is_refused_and_what_is_one_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match=r"^folds is 11; it must be from 1 to the number of rows, 10$"):
        released_fold_of(0, 10, 11)
    with pytest.raises(ValueError, match=r"^repetition is -1; it must be at least 0$"):
        released_fold_of(-1, 10)
    with pytest.raises(ValueError, match="read-only"):
        released_fold_of(0, 10)[0] = 1
