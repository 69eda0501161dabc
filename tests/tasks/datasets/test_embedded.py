from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_digits

from tasks.datasets import catalog
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.embedded import bilinear_weights, blend_digits, cut_squares, enlarge_images, photographs
from tasks.datasets.images import luma
from tasks.datasets.pictures import pixels
from tests.tasks.datasets.test_benchmark_files import IDX_TRAIN, idx_files


def test_digits_test_split_is_every_fifth_image() -> None:
    images = load(Dataset("digits"))
    labels = load_digits().target
    np.testing.assert_array_equal(labels[::5], images.test_labels)
    np.testing.assert_array_equal(np.delete(labels, np.s_[::5]), images.train_labels)
    assert images.train_images.shape == (1437, 28, 28, 1)
    assert images.test_images.shape == (360, 28, 28, 1)
    assert images.classes == 10


def test_digit_is_enlarged_by_linear_interpolation() -> None:
    digit = load_digits().images[5]
    places = np.clip((np.arange(28) + 0.5) * 8 / 28 - 0.5, 0, 7)
    rows = np.stack([np.interp(places, np.arange(8), column) for column in digit.T], axis=1)
    interpolated = np.stack([np.interp(places, np.arange(8), row) for row in rows])
    test_image = load(Dataset("digits")).test_images[1, ..., 0]
    assert np.abs(interpolated * 255 / 16 - test_image).max() <= 0.5 + 1e-9


def test_interpolation_weights_sum_to_one() -> None:
    assert set(bilinear_weights(8, 28).sum(axis=1).tolist()) == {2 * 28}


def test_full_ink_becomes_255_and_half_rounds_up() -> None:
    assert set(enlarge_images(np.full((1, 8, 8), 16), 28).ravel().tolist()) == {255}
    # 127.5
    assert set(enlarge_images(np.full((1, 8, 8), 8), 28).ravel().tolist()) == {128}


def test_bytes_of_digits_are_the_same_everywhere() -> None:
    images = load(Dataset("digits"))
    sha = hashlib.sha256(images.train_images.tobytes() + images.test_images.tobytes()).hexdigest()
    assert sha == "2d48fe42f64bde9afa8b597166d652b17b7f02cf1e5372cb6dd1a7fa9c4747bc"


def test_photos_are_grey_patches_of_no_class() -> None:
    images = load(Dataset("photos"))
    assert images.train_images.shape == (132, 28, 28, 1)
    assert images.test_images.shape == (528, 28, 28, 1)
    assert set(images.train_labels.tolist()) | set(images.test_labels.tolist()) == {0}
    assert 20 < images.test_images.std(axis=(1, 2, 3)).mean() < 80  # images with structure


def test_squares_tile_an_image_without_overlap() -> None:
    image = np.arange(5 * 7, dtype=np.uint8).reshape(5, 7, 1)
    expected = [[0, 1, 7, 8], [2, 3, 9, 10], [4, 5, 11, 12], [14, 15, 21, 22], [16, 17, 23, 24], [18, 19, 25, 26]]
    assert expected == cut_squares(image, 2).reshape(-1, 4).tolist()


def test_embedded_digests_are_fixed() -> None:
    digests = []
    for name in ("digits", "photos", "digits-on-photos"):
        digests.append(pin(Dataset(name)).digest[:16])
    assert digests == ["31677a82d16a6273", "25f705d19765c69a", "4eace7b5cde71db8"]


TEMPLE, FLOWER = (np.arange(first, first + 12, dtype=np.uint8).reshape(3, 4, 1) for first in (0, 100))


def test_pixel_is_absolute_difference_of_square_and_digit() -> None:
    digit = np.array([[0, 255], [7, 200]], np.uint8)[None, ..., None]
    photo = np.array([[30, 30], [30, 201]], np.uint8)[..., None]
    assert blend_digits(digit, [photo], "train").ravel().tolist() == [30, 225, 23, 1]


def test_every_square_of_photographs_is_equally_likely() -> None:
    white = np.zeros((12_000, 2, 2, 1), np.uint8)
    corners, counts = np.unique(blend_digits(white, [TEMPLE, FLOWER], "train")[:, 0, 0, 0], return_counts=True)
    assert corners.tolist() == [0, 1, 2, 4, 5, 6, 100, 101, 102, 104, 105, 106]
    assert ((counts - 1000) ** 2 / 1000).sum() < 31.3  # chi squared of 11 degrees of freedom, p 0.001


def test_square_is_contiguous() -> None:
    square = blend_digits(np.zeros((1, 2, 3, 1), np.uint8), [TEMPLE], "train")[0, ..., 0]
    assert (square - square[0, 0]).tolist() == [[0, 1, 2], [4, 5, 6]]


def test_square_of_row_depends_only_on_split() -> None:
    white = np.zeros((50, 1, 1, 1), np.uint8)
    train = blend_digits(white, [TEMPLE, FLOWER], "train")
    test = blend_digits(white, [TEMPLE, FLOWER], "test")
    assert train.tolist() != test.tolist()
    np.testing.assert_array_equal(train[:7], blend_digits(white[:7], [TEMPLE, FLOWER], "train"))


@pytest.mark.parametrize("shape", [(2, 2, 3), (4, 4, 1), (3, 5, 1)])
def test_digits_larger_than_photographs_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(DatasetError, match="expected grey and at most 3 x 4"):
        blend_digits(np.zeros((1, *shape), np.uint8), [TEMPLE, FLOWER], "train")


def test_digits_on_photos_blend_digits_with_photographs() -> None:
    digits = load(Dataset("digits"))
    images = load(Dataset("digits-on-photos"))
    assert digits.shape == images.shape
    assert digits.classes == images.classes
    np.testing.assert_array_equal(digits.train_labels, images.train_labels)
    np.testing.assert_array_equal(digits.test_labels, images.test_labels)
    digit = digits.test_images[3, ..., 0].astype(np.int64)
    blended = images.test_images[3, ..., 0].astype(np.int64)
    assert digit[0, 0] == 0  # so the square's corner is visible
    matches = 0
    for photo in photographs():
        squares = sliding_window_view(luma(pixels(photo.read_bytes(), channels=3))[..., 0], (28, 28))
        candidates = squares[squares[..., 0, 0] == blended[0, 0]].astype(np.int64)
        matches += int((np.abs(candidates - digit) == blended).all(axis=(1, 2)).sum())
    assert matches == 1


def test_mnist_on_photos_needs_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    with pytest.raises(DatasetError, match="'mnist' not found: ENGRAM_DATA is not set"):
        pin(Dataset("mnist-on-photos"))
    idx_files(tmp_path / "mnist", zipped=True)
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    images = load(pin(Dataset("mnist-on-photos")))
    assert images.shape == (4, 3, 1)
    assert images.train_labels.tolist() == [0, 1, 2, 1, 0]
    assert images.test_labels.tolist() == [2, 2]
    assert not np.array_equal(IDX_TRAIN[..., None], images.train_images)
    assert len({pin(Dataset(name)).digest for name in ("digits", "digits-on-photos", "mnist", "mnist-on-photos")}) == 4
