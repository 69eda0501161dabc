"""Pictures as a model is shown them: torchvision's transform, to the byte."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from tasks.datasets.boxed.crops import windows
from tasks.datasets.boxed.evaluation import centre, evaluation_pictures
from tasks.datasets.boxed.scenes import PicturesInMemory
from tasks.datasets.catalog import load_with_boxes
from tasks.datasets.dataset import Dataset


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * width).integers(256, size=(height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("resolution", [32, 64, 224])
@pytest.mark.parametrize("size", [(300, 500), (500, 333), (37, 37), (31, 90), (100, 257), (1, 9)])
def test_the_transform_is_torchvisions(size: tuple[int, int], resolution: int) -> None:
    from PIL import Image

    transforms = import_module("torchvision.transforms")
    picture = noise(*size)
    transform = transforms.Compose(
        [transforms.Resize(round(resolution * 256 / 224)), transforms.CenterCrop(resolution)]
    )
    np.testing.assert_array_equal(np.asarray(transform(Image.fromarray(picture))), centre(picture, resolution))


def test_windows_are_cut_out_first() -> None:
    pictures = load_with_boxes(Dataset("digits-on-photos"))
    rows = np.array([7, 3, 900])
    found, serves = windows(pictures, rows, "periphery", 4)
    assert serves.all()
    shown = evaluation_pictures(pictures, rows, 16, found)
    for row, (left, top, right, bottom), each in zip(rows, found, shown, strict=True):
        np.testing.assert_array_equal(centre(pictures.picture(row)[top:bottom, left:right], 16), each)
    np.testing.assert_array_equal(centre(pictures.picture(3), 16), evaluation_pictures(pictures, rows, 16)[1])


def test_bad_windows_are_refused() -> None:
    image = np.zeros((1, 8, 9, 3), np.uint8)
    pictures = PicturesInMemory(("a",), np.zeros(1, np.int64), ("one",), (np.zeros((0, 4), np.int32),), image)
    for window in ([0, 0, 10, 8], [0, 0, 9, 9], [3, 0, 3, 8], [-1, 0, 3, 8]):
        with pytest.raises(ValueError, match=r"the window of a is \[.*a rectangle inside its 8 x 9 pixels"):
            evaluation_pictures(pictures, np.array([0]), 4, np.array([window], np.int32))
    with pytest.raises(ValueError, match=r"windows are \(2, 4\); expected \(1, 4\)"):
        evaluation_pictures(pictures, np.array([0]), 4, np.zeros((2, 4), np.int32))
    with pytest.raises(ValueError, match="resolution is 0; it must be at least 1"):
        evaluation_pictures(pictures, np.array([0]), 0)
