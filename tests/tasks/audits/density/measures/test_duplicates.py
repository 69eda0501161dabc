"""The closest pairs of images in sets with known distances."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.density.measures.duplicates import (
    DUPLICATES,
    Closest,
    Duplicates,
    closest,
    closest_other,
    closest_pairs,
    duplicates,
    halve,
    rows,
)
from tasks.contract.measure import Tables
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images
from tests.tasks.summary_rows import by_name

DIGITS = pin(Dataset("digits"))


def grey(*levels: int, classes: int = 2) -> Images:
    """Images of 4 x 4 pixels with one level each, reduced to 2 x 2: the distance of two images is twice their
    difference.
    """
    pixels = np.repeat(np.array(levels, np.uint8), 16).reshape(-1, 4, 4, 1)
    labels = np.arange(len(levels)) % classes
    return Images(pixels, labels, pixels.copy(), labels.copy(), classes)


def pairs(images: Images, monkeypatch: pytest.MonkeyPatch, **options: int) -> list[tuple[int, int, float]]:
    monkeypatch.setattr("tasks.audits.density.measures.duplicates.load", lambda data: images)
    pair_rows = duplicates(Duplicates(DIGITS, **options), ()).to_pylist()
    assert list(range(1, len(pair_rows) + 1)) == [row["rank"] for row in pair_rows]
    result = []
    for row in pair_rows:
        result.append((row["row"], row["other"], round(row["distance"] * 255 / 2, 3)))
    return result


def test_each_pair_is_listed_once_closest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pairs(grey(10, 100, 15, 35, 102), monkeypatch) == [(1, 4, 2.0), (0, 2, 5.0), (2, 3, 20.0)]


def test_exact_duplicates_have_distance_0_and_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pairs(grey(50, 91, 50, 50, 100), monkeypatch) == [(0, 2, 0.0), (0, 3, 0.0), (1, 4, 9.0)]


def test_count_and_examples_limit_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    images = grey(10, 100, 15, 35, 102)
    assert pairs(images, monkeypatch, count=1) == [(1, 4, 2.0)]
    assert pairs(images, monkeypatch, examples=3) == [(0, 2, 5.0), (1, 2, 85.0)]


def test_labels_are_null_with_a_single_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.audits.density.measures.duplicates.load", lambda data: grey(10, 12, 90, classes=2))
    first = duplicates(Duplicates(DIGITS), ()).to_pylist()[0]
    assert tuple(first[name] for name in ("row", "other", "label", "other_label")) == (0, 1, 0, 1)
    monkeypatch.setattr("tasks.audits.density.measures.duplicates.load", lambda data: grey(10, 12, 90, classes=1))
    table = duplicates(Duplicates(DIGITS), ())
    assert table.schema == DUPLICATES
    assert table["label"].null_count == 2
    assert table["other_label"].null_count == 2


def test_closest_pair_of_digits_is_correct() -> None:
    images = load(DIGITS).train_images[:200].astype(np.float64) / 255
    rows = images.reshape(200, 14, 2, 14, 2).mean((2, 4)).reshape(200, -1)
    distances = np.sqrt(np.square(rows[:, None] - rows).sum(2))
    distances[np.tril_indices(200)] = np.inf
    closest_row = duplicates(Duplicates(DIGITS, examples=200, count=1), ()).to_pylist()[0]
    assert np.unravel_index(distances.argmin(), distances.shape) == (closest_row["row"], closest_row["other"])
    assert distances.min() == pytest.approx(closest_row["distance"], rel=1e-5)


def test_ties_are_in_row_order() -> None:
    pair_of_rows, distances = closest_pairs(Closest(np.array([1.0, 1, 1, 1]), np.array([3, 2, 1, 0])))
    assert pair_of_rows.tolist() == [[0, 3], [1, 2]]
    assert distances.tolist() == [1, 1]


def test_config_out_of_range_is_refused() -> None:
    for settings, message in (
        ({"examples": -1}, "examples is -1; it must be at least 0"),
        ({"count": 0}, "count is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            Duplicates(DIGITS, **settings)
    with pytest.raises(ValueError, match="examples is 2000; it must be at most 1437"):
        duplicates(Duplicates(DIGITS, 2000), ())


def pair_table(*distances: float) -> Tables:
    """A DUPLICATES table of pairs at these distances."""
    return Tables([pa.Table.from_pylist([{"distance": distance} for distance in distances], DUPLICATES)])


def test_equal_images_are_pairs_at_distance_0() -> None:
    summary_rows = by_name(rows(pair_table(0.0, 0.5, 0.0), None))
    assert summary_rows == {
        ("distance of the closest pair", "{}"): [0.0, None, None, 1, "pair of images", *[None] * 3],
        ("equal pairs", '{"listed": 3}'): [2.0, None, None, 3, "pair of images", *[None] * 3],
    }
    empty_rows = by_name(rows(pair_table(), None))
    assert empty_rows["distance of the closest pair", "{}"][0] is None
    assert empty_rows["distance of the closest pair", "{}"][3] == 0


def test_pixels_are_averaged_by_channel() -> None:
    images = np.zeros((1, 4, 4, 2), np.uint8)
    images[0, :2, 2:, 0] = [[255, 0], [51, 0]]
    images[0, 2:, :2, 1] = 255
    expected = np.zeros((2, 2, 2), np.float32)
    expected[0, 1, 0], expected[1, 0, 1] = 0.3, 1
    np.testing.assert_allclose(halve(images), expected.reshape(1, -1), rtol=1e-6)


def test_bytes_and_fractions_give_equal_rows() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2500, 6, 8, 3), dtype=np.uint8)
    fractions = (images / 255).astype(np.float32)
    assert halve(images).shape == (2500, 36)
    assert halve(images).tobytes() == halve(fractions).tobytes()
    wide = images.astype(np.float64).reshape(2500, 3, 2, 4, 2, 3).mean((2, 4)).reshape(2500, -1) / 255
    np.testing.assert_allclose(halve(images), wide, rtol=1e-6)


def test_odd_last_row_and_column_are_dropped() -> None:
    images = np.random.default_rng(1).integers(0, 256, (3, 5, 7, 1), dtype=np.uint8)
    assert halve(images[:, :4, :6]).tolist() == halve(images).tolist()


def test_image_of_width_1_is_refused() -> None:
    with pytest.raises(ValueError, match="images are 1 x 9; to be downsampled by 2 they must be at least 2 x 2"):
        halve(np.zeros((3, 1, 9, 1), np.uint8))


def test_closest_agrees_with_all_distances() -> None:
    rng = np.random.default_rng(2)
    rows = rng.random((40, 12), dtype=np.float32)
    among = rng.random((30, 12), dtype=np.float32)
    distances = np.sqrt(((rows[:, None].astype(np.float64) - among.astype(np.float64)) ** 2).sum(2))
    closest_rows = closest(rows, among)
    assert distances.argmin(1).tolist() == closest_rows.rows.tolist()
    np.testing.assert_allclose(closest_rows.distances, distances.min(1), rtol=1e-12)
    own_distances = np.sqrt(((rows[:, None].astype(np.float64) - rows.astype(np.float64)) ** 2).sum(2))
    np.fill_diagonal(own_distances, np.inf)
    closest_rows = closest_other(rows)
    assert own_distances.argmin(1).tolist() == closest_rows.rows.tolist()
    np.testing.assert_allclose(closest_rows.distances, own_distances.min(1), rtol=1e-12)


def test_equal_images_are_not_their_own_closest() -> None:
    rows = np.array([[0.0], [1], [1], [1], [1], [0.25]], np.float32)
    closest_rows = closest_other(rows)
    assert closest_rows.rows.tolist() == [5, 2, 1, 1, 1, 0]
    assert closest_rows.distances.tolist() == [0.25, 0, 0, 0, 0, 0.25]


def test_one_image_has_no_other() -> None:
    with pytest.raises(ValueError, match="there is one image; to have a closest other there must be at least 2"):
        closest_other(np.zeros((1, 4), np.float32))
