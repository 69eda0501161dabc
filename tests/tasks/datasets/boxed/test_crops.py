"""Rectangles outside the boxes, compared with a search of small grids and with cases made by hand."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.datasets.boxed.crops import (
    NOWHERE,
    Rectangle,
    central_square,
    corners,
    evaluation_pictures,
    gaps,
    maximal,
    periphery,
    rank,
    strips,
    windows,
)
from tasks.datasets.boxed.pictures import NO_BOXES
from tasks.datasets.boxed.scenes import PicturesInMemory
from tasks.datasets.catalog import load_with_boxes
from tasks.datasets.dataset import Dataset

Box = tuple[int, int, int, int]
EDGES = st.tuples(st.integers(-3, 11), st.integers(-3, 11), st.integers(1, 9), st.integers(1, 9))
BOXES = st.lists(EDGES.map(lambda box: (box[0], box[1], box[0] + box[2], box[1] + box[3])), max_size=5)


def empty(height: int, width: int, boxes: list[Box]) -> list[Rectangle]:
    """Every rectangle without a pixel of a box."""
    covered = np.zeros((height, width), bool)
    for x_start, y_start, x_end, y_end in boxes:
        covered[max(0, y_start) : max(0, y_end), max(0, x_start) : max(0, x_end)] = True
    return [
        (x_start, y_start, x_end, y_end)
        for x_start in range(width)
        for x_end in range(x_start + 1, width + 1)
        for y_start in range(height)
        for y_end in range(y_start + 1, height + 1)
        if not covered[y_start:y_end, x_start:x_end].any()
    ]


@given(st.integers(1, 8), st.integers(1, 8), BOXES)
@settings(max_examples=200)
def test_periphery_is_best_empty_rectangle(height: int, width: int, boxes: list[Box]) -> None:
    rectangles = empty(height, width, boxes)
    assert max(rectangles, key=rank, default=NOWHERE) == periphery(height, width, boxes)


@given(st.integers(1, 7), st.integers(1, 7), BOXES)
@settings(max_examples=100)
def test_every_maximal_rectangle_is_examined(height: int, width: int, boxes: list[Box]) -> None:
    rectangles = set(empty(height, width, boxes))
    largest = set()
    for x_start, y_start, x_end, y_end in rectangles:
        if not rectangles & {
            (x_start - 1, y_start, x_end, y_end),
            (x_start, y_start - 1, x_end, y_end),
        } | rectangles & {(x_start, y_start, x_end + 1, y_end), (x_start, y_start, x_end, y_end + 1)}:
            largest.add((x_start, y_start, x_end, y_end))
    inside = []
    for a, b, c, d in boxes:
        inside.append((max(0, a), max(0, b), min(width, c), min(height, d)))
    examined = set(maximal(height, width, [box for box in inside if box[0] < box[2] and box[1] < box[3]]))
    assert largest <= examined <= rectangles


@given(st.integers(1, 8), st.integers(1, 8), BOXES)
@settings(max_examples=100)
def test_strips_find_at_most_the_periphery(height: int, width: int, boxes: list[Box]) -> None:
    rectangle = strips(height, width, boxes)
    assert rectangle == NOWHERE or rectangle in empty(height, width, boxes)
    assert rank(rectangle)[0] <= rank(periphery(height, width, boxes))[0]


def test_strips_are_at_most_as_wide_as_box() -> None:
    # An image of 100 x 90 with a box in the middle third of its width, near its bottom.
    box = (30, 60, 60, 100)
    assert periphery(100, 90, [box]) == (0, 0, 90, 60)
    assert strips(100, 90, [box]) == (60, 0, 90, 100)
    # Between two boxes, one above the other.
    boxes = [(0, 0, 50, 20), (0, 70, 90, 100)]
    assert periphery(100, 90, boxes) == (0, 20, 90, 70)
    assert strips(100, 90, boxes) == (0, 20, 50, 70)


def test_ties_prefer_larger_then_higher_then_left_rectangle() -> None:
    assert periphery(10, 10, [(4, 4, 10, 10)]) == (0, 0, 10, 4)  # equal to (0, 0, 4, 10), which is less wide
    assert periphery(10, 10, [(0, 3, 10, 7)]) == (0, 0, 10, 3)
    assert periphery(10, 10, [(3, 0, 7, 10)]) == (0, 0, 3, 10)
    assert periphery(10, 10, [(3, 3, 6, 10)]) == (6, 0, 10, 10)  # larger than above the box


def test_no_box_leaves_entire_image() -> None:
    assert (0, 0, 7, 5) == periphery(5, 7, []) == strips(5, 7, [])
    assert NOWHERE == periphery(5, 7, [(-1, -1, 8, 6)]) == strips(5, 7, [(0, 0, 7, 5)])
    assert periphery(5, 7, [(7, 0, 9, 5)]) == (0, 0, 7, 5)  # outside the image


def test_gaps_lie_between_boxes_at_their_height() -> None:
    boxes = [(0, 2, 4, 4), (2, 3, 6, 7), (4, 0, 6, 1)]
    assert list(gaps(10, 0, 2, boxes)) == [(0, 2), (4, 10)]
    assert list(gaps(10, 2, 4, boxes)) == [(0, 2), (7, 10)]
    assert list(gaps(10, 4, 6, boxes)) == [(1, 3), (7, 10)]


@pytest.fixture
def pictures() -> PicturesInMemory:
    boxes: tuple[list[list[int]], ...] = ([[3, 3, 6, 10]], [], [[0, 0, 10, 10]], [[0, 4, 10, 6]])
    return PicturesInMemory(
        tuple("abcd"),
        np.zeros(4, np.int64),
        ("one",),
        tuple(np.array(coordinates, np.int32).reshape(-1, 4) if coordinates else NO_BOXES for coordinates in boxes),
        np.zeros((4, 10, 10, 3), np.uint8),
    )


def test_windows_report_which_rows_are_usable(pictures: PicturesInMemory) -> None:
    rows = np.array([3, 0, 1, 2])
    bounds, serves = windows(pictures, rows, "periphery", 4)
    assert bounds.tolist() == [[0, 0, 10, 4], [6, 0, 10, 10], [0] * 4, [0] * 4]
    assert serves.tolist() == [True, True, False, False]
    assert windows(pictures, rows, "periphery", 5)[1].tolist() == [False] * 4
    assert windows(pictures, rows, "strips", 0)[1].tolist() == [True, True, False, False]
    bounds, serves = windows(pictures, rows, "corner", 100)
    assert bounds.tolist() == [[0, 7, 3, 10]] * 4
    assert serves.tolist() == [True] * 4
    assert windows(pictures, rows, "corner", 100, 0.4)[0].tolist() == [[0, 6, 4, 10]] * 4
    with pytest.raises(ValueError, match="crop is 'centre'; it must be one of periphery, strips, corner"):
        windows(pictures, rows, "centre", 1)  # type: ignore[arg-type]


def test_corners_have_whole_pixels() -> None:
    sizes = np.array([[375, 500], [1, 2], [100, 33]], np.int32)
    assert corners(sizes).tolist() == [[0, 263, 150, 375], [0, 0, 1, 1], [0, 70, 9, 100]]
    assert corners(sizes, 0.4).tolist() == [[0, 225, 200, 375], [0, 0, 1, 1], [0, 60, 13, 100]]
    sides = np.arange(100, 5000, dtype=np.int32)
    for percent in range(1, 101):
        assert (percent * sides // 100 == corners(np.stack([sides, sides], 1), percent / 100)[:, 2]).all()


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
    np.testing.assert_array_equal(np.asarray(transform(Image.fromarray(picture))), central_square(picture, resolution))


def test_windows_are_cut_before_resizing() -> None:
    pictures = load_with_boxes(Dataset("digits-on-photos"))
    rows = np.array([7, 3, 900])
    bounds, serves = windows(pictures, rows, "periphery", 4)
    assert serves.all()
    images = evaluation_pictures(pictures, rows, 16, bounds)
    for row, (x_start, y_start, x_end, y_end), image in zip(rows, bounds, images, strict=True):
        np.testing.assert_array_equal(central_square(pictures.picture(row)[y_start:y_end, x_start:x_end], 16), image)
    np.testing.assert_array_equal(central_square(pictures.picture(3), 16), evaluation_pictures(pictures, rows, 16)[1])


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
