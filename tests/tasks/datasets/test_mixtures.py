"""Shares of data sets: nested, drawn by seed, whole groups at a time."""

from __future__ import annotations

import hashlib
import itertools
import struct
from dataclasses import replace

import numpy as np
import pytest

from tasks.datasets.catalog import load
from tasks.datasets.copies import train_contents
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images, Pixels
from tasks.datasets.mixtures import CoinedCanaries, Part, Remainder, Share, origins, overlap
from tasks.datasets.options import Options, Shaped

DIGITS = Part(Dataset("digits"), 100, 200)


@pytest.fixture(scope="module")
def images() -> Images:
    return load(Dataset("digits"))


def in_groups(images: Images, size: int) -> Images:
    return replace(images, train_groups=np.arange(len(images.train_images)) // size)


def test_part_is_its_number_of_rows(images: Images) -> None:
    assert list(range(100, 300)) == DIGITS.rows(images).tolist()


def test_part_without_number_goes_to_end(images: Images) -> None:
    assert list(range(1400, 1437)) == Part(Dataset("digits"), 1400).rows(images).tolist()


@pytest.mark.parametrize("part", [Part(Dataset("digits"), 1437), Part(Dataset("digits"), 1400, 38)])
def test_part_outside_the_data_set_is_refused(part: Part, images: Images) -> None:
    with pytest.raises(DatasetError, match="digits has the training images 0 to 1436, but not 14"):
        part.rows(images)


def test_shares_of_one_seed_are_nested(images: Images) -> None:
    shares = []
    for share in (0.1, 0.5, 0.75, 1 - 1e-9):
        shares.append(set(Share(DIGITS, share, 7).rows(images).tolist()))
    assert [len(rows) for rows in shares] == [20, 100, 150, 200]
    assert all(small < large for small, large in itertools.pairwise(shares))


def test_shares_of_two_seeds_differ(images: Images) -> None:
    first = set(Share(DIGITS, 0.5, 7).rows(images).tolist())
    second = set(Share(DIGITS, 0.5, 8).rows(images).tolist())
    assert 0 < len(first & second) < 100


def test_remainder_and_held_out_rows_are_the_part(images: Images) -> None:
    remainder = Remainder(DIGITS, 0.25, 7)
    remaining_rows = remainder.rows(images)
    held_rows = remainder.held_rows(images)
    assert len(remaining_rows) == 150
    assert len(held_rows) == 50
    assert list(range(100, 300)) == sorted([*remaining_rows.tolist(), *held_rows.tolist()])
    assert remaining_rows.tolist() != Remainder(DIGITS, 0.25, 8).rows(images).tolist()
    assert set(Share(remainder, 0.5, 1).rows(images).tolist()) < set(remaining_rows.tolist())


def test_groups_are_held_out_as_units(images: Images) -> None:
    grouped = in_groups(images, 10)
    remaining_rows = Remainder(DIGITS, 0.3, 7).rows(grouped)
    held_rows = Remainder(DIGITS, 0.3, 7).held_rows(grouped)
    assert len(remaining_rows) == 140
    assert len(held_rows) == 60
    assert not set((remaining_rows // 10).tolist()) & set((held_rows // 10).tolist())
    with pytest.raises(DatasetError, match="holding some out requires at least two"):
        Remainder(Part(Dataset("digits"), 100, 10), 0.5).rows(grouped)


def test_full_share_is_the_part(images: Images) -> None:
    assert DIGITS.rows(images).tolist() == Share(DIGITS).rows(images).tolist()


def test_share_contains_whole_groups(images: Images) -> None:
    grouped = in_groups(images, 10)
    rows = Share(DIGITS, 0.3, 7).rows(grouped)
    assert len(rows) == 60
    assert {int((rows // 10 == group).sum()) for group in np.unique(rows // 10)} == {10}


def test_smallest_share_contains_one_group(images: Images) -> None:
    assert len(Share(DIGITS, 0.001, 7).rows(in_groups(images, 10))) == 10
    assert len(Share(DIGITS, 0.001, 7).rows(images)) == 1


def test_every_image_is_drawn_equally_often(images: Images) -> None:
    counts = np.zeros(1437)
    for seed in range(400):
        counts[Share(DIGITS, 0.25, seed).rows(images)] += 1
    assert counts[100:300].mean() == 100
    assert counts[100:300].std() < 12  # binomial: 8.7


@pytest.mark.parametrize(
    ("share", "seed", "message"),
    [(0.0, 1, "share is 0.0; it must be above 0 and at most 1"), (1.5, 1, "share is 1.5"), (1.0, 3, "seed is 3")],
)
def test_invalid_share_is_refused(share: float, seed: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Share(DIGITS, share, seed)


PIXELS = np.random.default_rng(0).integers(0, 256, (9, 4, 6, 1), dtype=np.uint8)


def images_of(train: Pixels, origins: np.ndarray | None = None) -> Images:
    labels = np.zeros(len(train), np.int64)
    return Images(train, labels, train[:1], labels[:1], classes=1, train_origins=origins)


def all_rows(images: Images) -> np.ndarray:
    return np.arange(len(images.train_images))


def test_digest_covers_shape_and_pixels_of_image() -> None:
    image_digests = train_contents(images_of(PIXELS), np.array([5, 2]))
    expected = []
    for row in (5, 2):
        expected.append(hashlib.sha256(struct.pack("<3I", 4, 6, 1) + PIXELS[row].tobytes()).digest())
    assert expected == [digest.tobytes() for digest in image_digests]


def test_same_bytes_in_another_shape_differ() -> None:
    first, second = images_of(PIXELS), images_of(PIXELS.reshape(9, 6, 4, 1))
    assert overlap(first, all_rows(first), second, all_rows(second)) == []


def test_overlap_names_rows_in_both_sets() -> None:
    first, second = images_of(PIXELS[:6]), images_of(PIXELS[[7, 5, 8, 1, 5]])
    assert overlap(first, all_rows(first), second, all_rows(second)) == [(1, 3), (5, 1)]
    assert overlap(first, np.array([0, 5]), second, np.array([4, 3])) == [(5, 4)]
    assert overlap(first, np.array([0, 2]), second, all_rows(second)) == []


def test_overlap_names_each_repeated_image_once() -> None:
    black = images_of(np.zeros((300, 4, 6, 1), np.uint8))
    assert [(row, 0) for row in range(300)] == overlap(black, all_rows(black), black, all_rows(black))


def test_images_of_one_origin_overlap() -> None:
    plain = images_of(PIXELS)
    derived = images_of(255 - PIXELS[:3], origins(plain)[:3])
    other_derived = images_of(PIXELS[2:5] // 2, origins(plain)[2:5])
    assert overlap(plain, all_rows(plain), derived, all_rows(derived)) == [(0, 0), (1, 1), (2, 2)]
    assert overlap(derived, all_rows(derived), plain, all_rows(plain)) == [(0, 0), (1, 1), (2, 2)]
    assert overlap(derived, all_rows(derived), other_derived, all_rows(other_derived)) == [(2, 0)]


@pytest.fixture(scope="module")
def digits() -> Images:
    return load(Dataset("digits"))


def test_digits_are_all_different(digits: Images) -> None:
    every_image = np.concatenate([digits.train_images, digits.test_images])
    assert len({image.tobytes() for image in every_image}) == 1797


@pytest.mark.parametrize("shape", ["", "#14x14", "#14x14#rgb"])
def test_digits_on_photos_overlap_only_with_their_digits(shape: str) -> None:
    first, second = load(Dataset(f"digits{shape}")), load(Dataset(f"digits-on-photos{shape}"))
    assert [(row, row) for row in range(50, 60)] == overlap(first, np.arange(60), second, np.arange(50, 200))
    assert overlap(first, np.arange(600), second, np.arange(600, 1437)) == []


def test_reshaping_keeps_groups_and_origins(digits: Images) -> None:
    class Content:
        def digest(self) -> str:
            return ""

        def images(self) -> Images:
            return grouped

    groups = np.arange(1437) // 3
    grouped = replace(digits, train_groups=groups)
    small = Shaped(Content(), Options((14, 14))).images()
    assert groups.tolist() == np.asarray(small.train_groups).tolist()
    assert train_contents(digits, all_rows(digits)).tolist() == np.asarray(small.train_origins).tolist()
    grouped = replace(grouped, train_origins=train_contents(digits, all_rows(digits)[::-1]))
    small = Shaped(Content(), Options((14, 14))).images()
    assert grouped.train_origins is small.train_origins
    assert Shaped(Content(), Options((28, 28), channels=1)).images() is grouped


COINED = CoinedCanaries(DIGITS, 80, number=0, seed=3)


def test_coins_include_about_half_of_canaries(images: Images) -> None:
    canaries = set(COINED.canary_rows(images).tolist())
    rows = set(COINED.rows(images).tolist())
    assert len(canaries) == 80
    assert set(DIGITS.rows(images).tolist()) - canaries == rows - canaries
    assert np.array_equal(COINED.canary_rows(images)[COINED.is_inside()], sorted(rows & canaries))
    assert 20 < len(rows & canaries) < 60
    assert COINED.expected_count(images) == 160


def test_models_have_same_canaries_but_own_coins(images: Images) -> None:
    models = [replace(COINED, number=number) for number in range(200)]
    assert all(np.array_equal(COINED.canary_rows(images), model.canary_rows(images)) for model in models[:3])
    coins = np.stack([model.is_inside() for model in models])
    assert len(np.unique(coins, axis=0)) == 200
    assert abs(coins.mean() - 0.5) < 0.016  # four standard errors of 16,000 coins


def test_only_mislabelled_canaries_have_other_labels(images: Images) -> None:
    labels = replace(COINED, mislabelled=True).alter_canaries(images).train.labels
    changed = np.flatnonzero(labels != images.train_labels)
    assert np.array_equal(COINED.canary_rows(images), changed)
    assert labels.min() >= 0
    assert labels.max() < images.classes
    assert images.train_labels is COINED.alter_canaries(images).train.labels


def test_only_canaries_have_noise_or_glyphs(images: Images) -> None:
    rows = COINED.canary_rows(images)
    canary_images = {}
    for kind in ("noise", "glyph"):
        altered = replace(COINED, canary_images=kind, number=7).alter_canaries(images).train
        all_rows = np.arange(len(altered))
        changed = np.flatnonzero((altered.pixels(all_rows) != images.train_images).any(axis=(1, 2, 3)))
        assert np.array_equal(rows, changed)
        assert altered.labels is images.train_labels
        of_other_model = replace(COINED, canary_images=kind).alter_canaries(images).train
        assert np.array_equal(of_other_model.pixels(all_rows), altered.pixels(all_rows))
        canary_images[kind] = altered.pixels(rows)
    assert abs(canary_images["noise"].mean() - 127.5) < 2
    is_unchanged = canary_images["glyph"] == images.train_images[rows]
    assert 0.5 < is_unchanged.mean() < 1
    glyphs = {(~mask).tobytes() for mask in is_unchanged}
    assert len(glyphs) > 1
    assert not COINED.is_altered
    assert replace(COINED, mislabelled=True).is_altered
    assert replace(COINED, canary_images="noise").is_altered
    assert replace(COINED, canary_images="glyph").is_altered


def test_more_canaries_than_records_are_refused(images: Images) -> None:
    with pytest.raises(DatasetError, match="canaries is 201; only 200 records have no exact copy"):
        replace(COINED, canaries=201).canary_rows(images)
    with pytest.raises(ValueError, match="canaries is 0; it must be at least 1"):
        replace(COINED, canaries=0)
