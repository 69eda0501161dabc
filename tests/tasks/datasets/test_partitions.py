"""Folds of a partition: of even sizes, by a seed, and every partition as likely as any other."""

import numpy as np
import pytest
from scipy import stats

from tasks.datasets.partitions import fold_of


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
    assert [1, 2, 2, 0, 0, 1, 0, 2, 0, 1] == fold_of(1, 10, 3).tolist()


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
    assert 90 == len(counts)
    assert 0.01 < stats.chisquare(counts).pvalue < 0.99


def test_a_larger_fold_may_be_any_row_s() -> None:
    # Of five rows in two folds, the larger is always fold 0, and any row is in it three times of five.
    inside = np.mean([fold_of(seed, 5, 2) == 0 for seed in range(4000)], axis=0)
    assert np.abs(inside - 3 / 5).max() < 4 * np.sqrt(0.6 * 0.4 / 4000)


@pytest.mark.parametrize(("rows", "folds"), [(10, 11), (10, 0), (0, 1), (5, -1)])
def test_more_folds_than_rows_or_none_are_refused(rows: int, folds: int) -> None:
    with pytest.raises(ValueError, match=f"folds is {folds}; it must be from 1 to the number of rows, {rows}"):
        fold_of(0, rows, folds)
