"""Exact copies are one record: one group, one coin, one split."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from tasks.datasets.catalog import load
from tasks.datasets.copies import CopyCount, count_copies, count_groups, distinct_rows, groups_of
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images
from tasks.datasets.mixtures import BalancedHalf, CoinedCanaries, Part, Remainder, Share
from tasks.datasets.outlines import Outline

SHOWN = np.array([0, 1, 2, 0, 3, 1, 0, 4, 5, 6])  # the picture in each training image
DATA = Dataset("toys")
ALL = np.arange(len(SHOWN))


@pytest.fixture(scope="module")
def images() -> Images:
    generator = np.random.default_rng(0)
    pictures = generator.integers(0, 256, (7, 4, 4, 1), np.uint8)
    labels = np.arange(len(SHOWN)) % 2  # copies have different labels
    return Images(pictures[SHOWN], labels, pictures[:2], labels[:2], 2)


def test_copies_have_the_group_of_the_first(images: Images) -> None:
    assert groups_of(images, ALL).tolist() == [0, 1, 2, 0, 4, 1, 0, 7, 8, 9]


@pytest.mark.parametrize(
    ("original_groups", "joined"),
    [([0, 0, 1, 1, 2, 2, 3, 3, 3, 3], [0] * 10), ([5, 6, 7, 5, 8, 6, 5, 9, 3, 3], [5, 6, 7, 5, 8, 6, 5, 9, 3, 3])],
)
def test_copies_join_their_given_groups(original_groups: list[int], joined: list[int], images: Images) -> None:
    grouped = replace(images, train_groups=np.array(original_groups))
    assert groups_of(grouped, ALL).tolist() == joined


def test_images_of_one_original_are_one_group(images: Images) -> None:
    origins = np.arange(len(SHOWN) * 32, dtype=np.uint8).reshape(-1, 32).copy()
    origins[9] = origins[2]
    assert groups_of(replace(images, train_origins=origins), ALL)[9] == 2


def test_images_without_copies_are_their_own_groups() -> None:
    digits = load(Dataset("digits"))
    rows = np.arange(len(digits.train_images))
    assert np.array_equal(groups_of(digits, rows), rows)
    assert count_copies(digits, rows) == CopyCount()


def test_copies_are_counted_among_the_rows(images: Images) -> None:
    assert count_copies(images, ALL) == CopyCount(groups=2, images=5, records=len(ALL) - 3)
    assert count_copies(images, ALL[:5]) == CopyCount(groups=1, images=2, records=4)
    assert distinct_rows(images, ALL).tolist() == [0, 1, 2, 4, 7, 8, 9]


def test_counting_texts_needs_little_memory() -> None:
    texts = [f"text {number % 2000}" for number in range(2001)] + ["x" * 100_000]
    tracemalloc.start()
    try:
        assert count_groups(texts, "texts") == CopyCount(groups=1, images=2, records=2001, things="texts")
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


def test_blank_images_of_an_outline_are_no_copies() -> None:
    blank = Outline(20, 5, (4, 4, 1), 2).images()
    assert np.array_equal(groups_of(blank, np.arange(20)), np.arange(20))
    assert count_copies(blank, np.arange(20)) == CopyCount()


SPLITS = {
    "halves": lambda seed: BalancedHalf(Part(DATA), 2, 0, seed),
    "share": lambda seed: Share(Part(DATA), 0.5, seed),
    "held back": lambda seed: Remainder(Part(DATA), 0.5, seed),
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("seed", range(8))
def test_copies_are_on_one_side_of_splits(split: str, seed: int, images: Images) -> None:
    inside = set(SHOWN[SPLITS[split](seed).rows(images)])
    outside = set(SHOWN[np.setdiff1d(ALL, SPLITS[split](seed).rows(images))])
    assert inside
    assert outside
    assert not inside & outside


def test_canaries_have_no_copies(images: Images) -> None:
    for seed in range(8):
        assert not set(SHOWN[CoinedCanaries(Part(DATA), 5, 0, seed).canary_rows(images)]) & {0, 1}
    with pytest.raises(DatasetError, match="canaries is 6; only 5 records have no exact copy"):
        CoinedCanaries(Part(DATA), 6, 0, 0).canary_rows(images)


def test_later_part_can_leave_out_copies(images: Images) -> None:
    assert Part(DATA, 3, 0, without_copies=True).rows(images).tolist() == [4, 7, 8, 9]
