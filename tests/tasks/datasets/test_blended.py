from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from tasks.datasets import catalog, embedded
from tasks.datasets.blended import blend_digits
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import decode_picture, luma
from tests.tasks.datasets import test_idx

TEMPLE, FLOWER = (np.arange(first, first + 12, dtype=np.uint8).reshape(3, 4, 1) for first in (0, 100))


def test_a_pixel_is_the_absolute_difference_of_the_squares_and_the_digits() -> None:
    digit = np.array([[0, 255], [7, 200]], np.uint8)[None, ..., None]
    photo = np.array([[30, 30], [30, 201]], np.uint8)[..., None]
    assert [30, 225, 23, 1] == blend_digits(digit, [photo], "train").ravel().tolist()


def test_every_square_of_every_photograph_is_equally_likely() -> None:
    white = np.zeros((12_000, 2, 2, 1), np.uint8)
    corners, counts = np.unique(blend_digits(white, [TEMPLE, FLOWER], "train")[:, 0, 0, 0], return_counts=True)
    assert [0, 1, 2, 4, 5, 6, 100, 101, 102, 104, 105, 106] == corners.tolist()
    assert ((counts - 1000) ** 2 / 1000).sum() < 31.3  # chi squared of 11 degrees of freedom, p 0.001


def test_a_square_is_cut_out_whole() -> None:
    square = blend_digits(np.zeros((1, 2, 3, 1), np.uint8), [TEMPLE], "train")[0, ..., 0]
    assert [[0, 1, 2], [4, 5, 6]] == (square - square[0, 0]).tolist()


def test_a_rows_square_depends_on_its_split_and_not_on_how_many_rows_there_are() -> None:
    white = np.zeros((50, 1, 1, 1), np.uint8)
    train, test = (blend_digits(white, [TEMPLE, FLOWER], split) for split in ("train", "test"))
    assert train.tolist() != test.tolist()
    np.testing.assert_array_equal(train[:7], blend_digits(white[:7], [TEMPLE, FLOWER], "train"))


@pytest.mark.parametrize("shape", [(2, 2, 3), (4, 4, 1), (3, 5, 1)])
def test_digits_that_no_photograph_holds_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(DatasetError, match="they must be grey and at most 3 x 4"):
        blend_digits(np.zeros((1, *shape), np.uint8), [TEMPLE, FLOWER], "train")


def test_digits_on_photos_are_the_digits_on_the_photographs() -> None:
    digits, images = (load(Dataset(name)) for name in ("digits", "digits-on-photos"))
    assert (digits.shape, digits.classes) == (images.shape, images.classes)
    np.testing.assert_array_equal(digits.train_labels, images.train_labels)
    np.testing.assert_array_equal(digits.test_labels, images.test_labels)
    digit, shown = (each.test_images[3, ..., 0].astype(np.int64) for each in (digits, images))
    assert 0 == digit[0, 0]  # so the square's corner shows
    there = 0
    for photo in embedded.photographs():
        squares = sliding_window_view(luma(decode_picture(photo.read_bytes()))[..., 0], (28, 28))
        candidates = squares[squares[..., 0, 0] == shown[0, 0]].astype(np.int64)
        there += int((np.abs(candidates - digit) == shown).all(axis=(1, 2)).sum())
    assert 1 == there


def test_mnists_digits_are_laid_on_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    with pytest.raises(DatasetError, match="'mnist' not found: ENGRAM_DATA is not set"):
        pin(Dataset("mnist-on-photos"))
    test_idx.written(tmp_path / "mnist", zipped=True)
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    images = load(pin(Dataset("mnist-on-photos")))
    assert ((4, 3, 1), [0, 1, 2, 1, 0], [2, 2]) == (
        images.shape,
        images.train_labels.tolist(),
        images.test_labels.tolist(),
    )
    assert not np.array_equal(test_idx.TRAIN[..., None], images.train_images)
    assert 4 == len({pin(Dataset(name)).digest for name in ("digits", "digits-on-photos", "mnist", "mnist-on-photos")})


def test_the_digest_of_digits_on_photos_is_fixed() -> None:
    assert "4eace7b5cde71db8" == pin(Dataset("digits-on-photos")).digest[:16]
