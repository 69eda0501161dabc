"""Digits on photographs as scenes: each with its own region, its own box, and a known correlation."""

from __future__ import annotations

import colorsys
import gzip
import hashlib

import numpy as np
import pytest

from tasks.datasets.boxed.partition import Partition, split_pictures
from tasks.datasets.boxed.scenes import (
    AWAY,
    DIGIT,
    INKS,
    SIDE,
    SQUARE,
    PicturesInMemory,
    backgrounds,
    groups,
    render_scenes,
)
from tasks.datasets.catalog import load, load_with_boxes, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.embedded import Digits, bilinear_weights, cut_squares, digits_source, photographs
from tasks.datasets.images import resize_images
from tasks.datasets.pictures import pixels

DATA = Dataset("digits-on-photos")


def load_scenes(correlation: float) -> PicturesInMemory:
    pictures = load_with_boxes(DATA, correlation)
    assert isinstance(pictures, PicturesInMemory)
    return pictures


def squares() -> np.ndarray:
    return np.concatenate([cut_squares(pixels(path.read_bytes(), channels=3), SQUARE) for path in photographs()])


def test_every_scene_shows_its_own_square() -> None:
    pictures = load_scenes(0)
    grounds = backgrounds(squares())
    outside = np.ones((len(grounds), SIDE, SIDE), bool)
    for row, ((x_start, y_start, x_end, y_end),) in enumerate(pictures.boxes):
        assert x_end - x_start == DIGIT
        assert y_end - y_start == DIGIT
        assert min(x_start, SIDE - x_end) <= AWAY >= min(y_start, SIDE - y_end)
        outside[row, y_start:y_end, x_start:x_end] = False
    assert (pictures.images == grounds[..., None])[outside].all()
    assert list(pictures.ids) == sorted(set(pictures.ids))
    assert pictures.ids[0] == "china-000-000"
    assert pictures.ids[-1] == "flower-025-039"
    assert [tuple(size) for size in pictures.sizes.tolist()] == [(SIDE, SIDE)] * 2080
    corners = set()
    for box in pictures.boxes:
        corners.add((box[0, 0] > SIDE // 4, box[0, 1] > SIDE // 4))
    assert len(corners) == 4


def test_box_contains_digit_in_ink_of_its_class() -> None:
    digit = np.zeros((1, DIGIT, DIGIT), np.uint8)
    digit[0, 2, 3], digit[0, 2, 4] = 255, 51
    ground = np.full((1, SIDE, SIDE), 100, np.uint8)
    image = render_scenes(ground, digit, np.array([3]), np.array([[5, 7]]))[0]
    assert image[7, 10].tolist() == [51, 255, 0]
    assert image[7, 11].tolist() == [90, 131, 80]  # a fifth of the way
    image[7, 10:12] = 100
    assert (image == 100).all()


def test_inks_are_ten_equally_spaced_hues() -> None:
    hues = []
    for label in range(10):
        hues.append([round(255 * part) for part in colorsys.hsv_to_rgb(label / 10, 1, 1)])
    assert hues == [list(ink) for ink in INKS]


def test_backgrounds_are_normalised_grey_squares() -> None:
    some_squares = squares()[::90]
    grounds = backgrounds(some_squares)
    for square, ground in zip(some_squares, grounds, strict=True):
        weights = bilinear_weights(SQUARE, SIDE) / (2 * SIDE)
        grey = weights @ (square.mean(axis=2) / 255) @ weights.T
        levels = (grey - grey.mean()) / (grey.std() + 0.004) * 0.15 + 0.35
        assert np.abs(ground - 255 * levels.clip(0, 0.8)).max() <= 0.5 + 1e-6
    for level in (0, 128, 255):  # no structure at any brightness
        assert (backgrounds(np.full((1, SQUARE, SQUARE, 3), level, np.uint8)) == 89).all()


def test_classes_have_equal_scenes_with_digits_in_turn() -> None:
    _, labels = Digits(load_digits()).levels()
    for correlation in (0, 1):
        assert np.bincount(load_scenes(correlation).labels).tolist() == [208] * 10
    digests = []
    for scene in box_contents(load_scenes(0)):
        digests.append(hashlib.sha256(scene).digest())
    assert len(set(digests)) > 2000  # on other backgrounds
    assert 2 * np.bincount(labels).min() > 208  # so no digit is used three times


def load_digits() -> bytes:
    return gzip.decompress(digits_source().files[0].read_bytes())


def box_contents(pictures: PicturesInMemory) -> list[bytes]:
    boxes = [box[0] for box in pictures.boxes]
    contents = []
    for scene, (x_start, y_start, x_end, y_end) in zip(pictures.images, boxes, strict=True):
        contents.append(scene[y_start:y_end, x_start:x_end].tobytes())
    return contents


@pytest.mark.parametrize(("correlation", "agreeing"), [(0.0, 0.1), (0.5, 0.55), (1.0, 1.0)])
def test_background_predicts_digit_according_to_correlation(correlation: float, agreeing: float) -> None:
    agreement = (load_scenes(correlation).labels == groups(backgrounds(squares()))).mean()
    # Four deviations of a share of 2,080 scenes.
    assert abs(agreement - agreeing) <= 4 * np.sqrt(agreeing * (1 - agreeing) / 2080)


def test_groups_are_equal_and_ordered_by_roughness() -> None:
    steps = np.zeros((20, 4, 4), np.uint8)
    steps[:, 1, 2] = np.arange(20)
    assert [row // 2 for row in range(20)] == groups(steps).tolist()
    assert groups(np.stack([np.full((2, 2), 200), np.eye(2) * 9]).astype(np.uint8)).tolist() == [0, 5]


def test_correlated_scenes_differ_only_in_digits() -> None:
    plain = load_scenes(0)
    correlated = load_scenes(1)
    assert plain.ids == correlated.ids
    np.testing.assert_array_equal(plain.boxes, correlated.boxes)
    assert not np.array_equal(plain.labels, correlated.labels)


def test_drawn_scenes_never_change() -> None:
    pictures = load_scenes(0)
    text = str([pictures.labels[::40].tolist(), np.concatenate(pictures.boxes)[::40].tolist()])
    assert hashlib.sha256(text.encode()).hexdigest()[:12] == "575d3ffd3f34"


def test_scenes_partition_with_room_for_the_null() -> None:
    parts = split_pictures(load_scenes(0), Partition(per_class=40, public=400))
    assert [len(parts.rows(name)) for name in ("A", "B", "other A", "other B", "X", "validation")] == [
        400,
        400,
        400,
        400,
        400,
        80,
    ]


def test_images_of_the_data_set_are_unchanged() -> None:
    assert load(DATA).shape == (28, 28, 1)
    assert pin(DATA).digest == pin(Dataset("digits-on-photos")).digest
    assert load_with_boxes(pin(DATA)) is load_with_boxes(DATA)


def test_correlation_is_only_for_scenes() -> None:
    with pytest.raises(
        ValueError, match=r"correlation is 0\.5 with data set 'digits'; it must be 0, since only digits-on"
    ):
        load_with_boxes(Dataset("digits"), 0.5)
    with pytest.raises(ValueError, match=r"correlation is 1\.5; it must be a share from 0 to 1"):
        load_with_boxes(DATA, 1.5)
    with pytest.raises(DatasetError, match="data set 'digits' contains no boxed images; use digits-on-photos, imag"):
        load_with_boxes(Dataset("digits"))
    with pytest.raises(DatasetError, match="is not the one that was pinned"):
        load_with_boxes(Dataset("digits-on-photos", "abc"))


def test_squares_are_images_at_another_size() -> None:
    pictures = load_scenes(0)
    rows = np.array([5, 2, 5])
    np.testing.assert_array_equal(pictures.images[rows], pictures.squares(rows, SIDE))
    half = pictures.squares(rows, 16)
    np.testing.assert_array_equal(half[0], half[2])
    np.testing.assert_array_equal(resize_images(pictures.picture(2)[None], 16, 16)[0], half[1])
