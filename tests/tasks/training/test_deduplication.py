from __future__ import annotations

import numpy as np
import pytest

from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.training.deduplication import NearestImages

DIGITS = load(pin(Dataset("digits"))).train_images[:300]


def brute(images: np.ndarray, row: int, count: int) -> list[int]:
    """By whole numbers, sorted by distance and then by row."""
    squares = ((images.astype(np.int64) - images[row].astype(np.int64)) ** 2).reshape(len(images), -1).sum(axis=1)
    order = [int(other) for other in np.lexsort((np.arange(len(images)), squares)) if other != row]
    return sorted(order[:count])


@pytest.mark.parametrize("row", [0, 7, 299])
@pytest.mark.parametrize("count", [1, 10, 299])
def test_the_nearest_images_are_those_of_every_difference_and_never_the_image_itself(row: int, count: int) -> None:
    found = NearestImages(row, count).rows_among(DIGITS)
    assert brute(DIGITS, row, count) == found.tolist()
    assert (count, False) == (len(found), row in found)


def test_of_equally_near_images_the_lower_row_goes_first_copies_of_the_image_among_them() -> None:
    images = DIGITS[:20].copy()
    images[[3, 9, 15]] = images[12]  # copies of the image, before it and after it
    images[5:9] = images[5]
    assert [3, 9] == NearestImages(12, 2).rows_among(images).tolist()
    assert [3, 9, 15] == NearestImages(12, 3).rows_among(images).tolist()
    assert [6, 7] == NearestImages(5, 2).rows_among(images).tolist()
    assert [5, 6] == NearestImages(8, 2).rows_among(images).tolist()


def test_neighbours_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="count is 0; it must be at least 1"):
        NearestImages(3, 0)
    with pytest.raises(ValueError, match="they must be at most 19, the training images beside it"):
        NearestImages(3, 20).rows_among(DIGITS[:20])
    with pytest.raises(ValueError, match="row 20 has no neighbours; the rows are 0 to 19"):
        NearestImages(20, 2).rows_among(DIGITS[:20])
