"""Shares of data sets: nested, drawn by seed, whole groups at a time."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images
from tasks.datasets.mixtures import Part, Remainder, Share

DIGITS = Part(Dataset("digits"), 100, 200)


@pytest.fixture(scope="module")
def images() -> Images:
    return load(Dataset("digits"))


def in_groups(images: Images, size: int) -> Images:
    return replace(images, train_groups=np.arange(len(images.train_images)) // size)


def test_a_part_is_so_many_rows_from_the_first_on(images: Images) -> None:
    assert list(range(100, 300)) == DIGITS.rows(images).tolist()


def test_a_part_without_a_number_goes_to_the_end(images: Images) -> None:
    assert list(range(1400, 1437)) == Part(Dataset("digits"), 1400).rows(images).tolist()


@pytest.mark.parametrize("part", [Part(Dataset("digits"), 1437), Part(Dataset("digits"), 1400, 38)])
def test_a_part_that_the_data_set_does_not_have_is_refused(part: Part, images: Images) -> None:
    with pytest.raises(DatasetError, match="digits has the training images 0 to 1436, not those from 14"):
        part.rows(images)


def test_shares_of_one_seed_are_nested(images: Images) -> None:
    shares = [set(Share(DIGITS, share, 7).rows(images).tolist()) for share in (0.1, 0.5, 0.75, 1 - 1e-9)]
    assert [20, 100, 150, 200] == [len(rows) for rows in shares]
    assert all(small < large for small, large in itertools.pairwise(shares))


def test_shares_of_two_seeds_differ(images: Images) -> None:
    first, second = (set(Share(DIGITS, 0.5, seed).rows(images).tolist()) for seed in (7, 8))
    assert 0 < len(first & second) < 100


def test_a_remainder_and_what_is_held_back_are_the_part(images: Images) -> None:
    remainder = Remainder(DIGITS, 0.25, 7)
    left, held = remainder.rows(images), remainder.held_rows(images)
    assert (150, 50) == (len(left), len(held))
    assert list(range(100, 300)) == sorted([*left.tolist(), *held.tolist()])
    assert left.tolist() != Remainder(DIGITS, 0.25, 8).rows(images).tolist()
    assert set(Share(remainder, 0.5, 1).rows(images).tolist()) < set(left.tolist())


def test_groups_are_held_back_whole_and_a_single_one_cannot_be_split(images: Images) -> None:
    grouped = in_groups(images, 10)
    left, held = Remainder(DIGITS, 0.3, 7).rows(grouped), Remainder(DIGITS, 0.3, 7).held_rows(grouped)
    assert (140, 60) == (len(left), len(held))
    assert not set((left // 10).tolist()) & set((held // 10).tolist())
    with pytest.raises(DatasetError, match="to hold some back there must be two at least"):
        Remainder(Part(Dataset("digits"), 100, 10), 0.5).rows(grouped)


def test_all_of_a_part_is_the_part(images: Images) -> None:
    assert DIGITS.rows(images).tolist() == Share(DIGITS).rows(images).tolist()


def test_a_share_holds_whole_groups(images: Images) -> None:
    grouped = in_groups(images, 10)
    rows = Share(DIGITS, 0.3, 7).rows(grouped)
    assert 60 == len(rows)
    assert {10} == {int((rows // 10 == group).sum()) for group in np.unique(rows // 10)}


def test_the_smallest_share_holds_one_group(images: Images) -> None:
    assert 10 == len(Share(DIGITS, 0.001, 7).rows(in_groups(images, 10)))
    assert 1 == len(Share(DIGITS, 0.001, 7).rows(images))


def test_every_image_is_drawn_equally_often(images: Images) -> None:
    counts = np.zeros(1437)
    for seed in range(400):
        counts[Share(DIGITS, 0.25, seed).rows(images)] += 1
    assert 100 == counts[100:300].mean()
    assert counts[100:300].std() < 12  # binomial: 8.7


@pytest.mark.parametrize(
    ("share", "seed", "message"),
    [(0.0, 1, "share is 0.0; it must be above 0 and at most 1"), (1.5, 1, "share is 1.5"), (1.0, 3, "seed is 3")],
)
def test_a_share_that_is_none_is_refused(share: float, seed: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Share(DIGITS, share, seed)
