"""Folds of a partition: even sizes, determined by a seed, and every partition equally likely."""

from __future__ import annotations

import hashlib
from itertools import islice

import numpy as np
import pytest
from scipy import stats

from tasks.training.density_config import fold_of, number_below, released_fold_of, shuffle_rows, sync_rng_numbers


@pytest.mark.parametrize(("rows", "folds"), [(10, 5), (11, 5), (14, 5), (7, 7), (3, 1), (60_000, 10)])
def test_every_row_is_in_one_even_fold(rows: int, folds: int) -> None:
    folds_of_rows = fold_of(3, rows, folds)
    assert (rows,) == folds_of_rows.shape
    assert folds_of_rows.min() == 0
    assert folds_of_rows.max() == folds - 1
    sizes = np.bincount(folds_of_rows, minlength=folds)
    assert rows == sizes.sum()
    assert set(sizes.tolist()) == {rows // folds, -(-rows // folds)}


def test_partition_depends_only_on_its_seed() -> None:
    assert fold_of(4, 500, 10).tolist() == fold_of(4, 500, 10).tolist()
    different = []
    for seed in (0, 5, 6):
        different.append((fold_of(4, 500, 10) != fold_of(seed, 500, 10)).mean())
    # In two independent partitions, nine rows in ten are in different folds.
    assert all(0.8 < share < 1 for share in different)


def test_partition_of_known_seed_never_changes() -> None:
    # Stored trainings record only the seed of their partition, so the partition of a seed must never change.
    assert fold_of(1, 10, 3).tolist() == [1, 2, 2, 0, 0, 1, 0, 2, 0, 1]


def test_folds_are_equally_likely_for_every_row() -> None:
    rows = 12
    folds = 4
    partitions = 4000
    folds_of_rows = np.stack([fold_of(seed, rows, folds) for seed in range(partitions)])
    counts = np.stack([np.bincount(column, minlength=folds) for column in folds_of_rows.T])  # (rows, folds)
    # A test per row with a Bonferroni correction, because the rows' counts are dependent.
    assert min(stats.chisquare(row).pvalue for row in counts) > 0.01 / rows


def test_every_partition_is_equally_likely() -> None:
    # Six rows, two in each of three folds: 90 partitions.
    partitions = [tuple(fold_of(seed, 6, 3).tolist()) for seed in range(9000)]
    _, counts = np.unique(partitions, axis=0, return_counts=True)
    assert len(counts) == 90
    assert 0.01 < stats.chisquare(counts).pvalue < 0.99


def test_larger_fold_may_contain_any_row() -> None:
    # With five rows in two folds, fold 0 is always the larger one and contains each row with probability 3/5.
    inside = np.mean([fold_of(seed, 5, 2) == 0 for seed in range(4000)], axis=0)
    assert np.abs(inside - 3 / 5).max() < 4 * np.sqrt(0.6 * 0.4 / 4000)


@pytest.mark.parametrize(("rows", "folds"), [(10, 11), (10, 0), (0, 1), (5, -1)])
def test_invalid_number_of_folds_is_refused(rows: int, folds: int) -> None:
    with pytest.raises(ValueError, match=f"folds is {folds}; it must be from 1 to the number of rows, {rows}"):
        fold_of(0, rows, folds)


def test_generator_reproduces_the_packages_numbers() -> None:
    assert list(islice(sync_rng_numbers(123456), 5)) == [959852049, 2314333085, 2255782734, 2921461239, 1024197102]


def test_numbers_below_bound_and_shuffles_match_package() -> None:
    numbers = sync_rng_numbers(123456)
    assert [number_below(5, numbers) for _ in range(5)] == [4, 0, 4, 4, 2]
    assert shuffle_rows(5, 123456) == [2, 3, 0, 1, 4]


def test_number_of_incomplete_round_is_drawn_again() -> None:
    # 2^32 draws are complete rounds of 3 and 1 surplus draw.
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
def test_folds_of_paper_match_released_code(rows: int, repetition: int, digest: str) -> None:
    folds_of_rows = released_fold_of(repetition, rows)
    assert np.int32 == folds_of_rows.dtype
    assert digest == hashlib.sha256(folds_of_rows.tobytes()).hexdigest()[:16]
    assert [rows // 10] * 10 == np.bincount(folds_of_rows).tolist()


def test_first_folds_are_longer_if_unequal() -> None:
    assert np.bincount(released_fold_of(0, 1437)).tolist() == [144] * 7 + [143] * 3
    assert released_fold_of(0, 10).tolist() == [3, 4, 5, 2, 9, 8, 0, 6, 7, 1]
    assert released_fold_of(9, 10).tolist() == [5, 0, 7, 3, 2, 9, 6, 1, 8, 4]


def test_invalid_partitions_are_refused_and_folds_read_only() -> None:
    with pytest.raises(ValueError, match=r"^folds is 11; it must be from 1 to the number of rows, 10$"):
        released_fold_of(0, 10, 11)
    with pytest.raises(ValueError, match=r"^repetition is -1; it must be at least 0$"):
        released_fold_of(-1, 10)
    with pytest.raises(ValueError, match="read-only"):
        released_fold_of(0, 10)[0] = 1
