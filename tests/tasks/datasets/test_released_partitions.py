"""The partitions of the paper's released code, beside what its own packages draw.

The numbers and digests below are from SyncRNG 1.3.1 and 1.3.4 with the paper's procedure, once.
"""

import hashlib
from itertools import islice

import numpy as np
import pytest

from tasks.datasets.released_partitions import below, numbers, released_fold_of, shuffle_rows


def test_the_generator_draws_the_packages_numbers() -> None:
    assert [959852049, 2314333085, 2255782734, 2921461239, 1024197102] == list(islice(numbers(123456), 5))


def test_numbers_below_a_bound_and_shuffled_places_are_the_packages() -> None:
    drawn = numbers(123456)
    assert [4, 0, 4, 4, 2] == [below(5, drawn) for _ in range(5)]
    assert [2, 3, 0, 1, 4] == shuffle_rows(5, 123456)


def test_a_number_of_an_incomplete_round_is_drawn_again() -> None:
    # Of 3 there are 2^32 / 3 rounds and 1 left over.
    assert 2 == below(3, iter([2**32 - 1, 5]))
    assert 2 == below(3, iter([2**32 - 2, 5]))


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
    assert [144] * 7 + [143] * 3 == np.bincount(released_fold_of(0, 1437)).tolist()
    assert [3, 4, 5, 2, 9, 8, 0, 6, 7, 1] == released_fold_of(0, 10).tolist()
    assert [5, 0, 7, 3, 2, 9, 6, 1, 8, 4] == released_fold_of(9, 10).tolist()


def test_what_is_no_partition_is_refused_and_what_is_one_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match=r"^folds is 11; it must be from 1 to the number of rows, 10$"):
        released_fold_of(0, 10, 11)
    with pytest.raises(ValueError, match=r"^repetition is -1; it must be at least 0$"):
        released_fold_of(-1, 10)
    with pytest.raises(ValueError, match="read-only"):
        released_fold_of(0, 10)[0] = 1
