import numpy as np
import pytest

from tasks.audits.density.closest_images import closest, closest_other, halve


def test_pixels_are_averaged_two_by_two_in_their_own_channel() -> None:
    images = np.zeros((1, 4, 4, 2), np.uint8)
    images[0, :2, 2:, 0] = [[255, 0], [51, 0]]
    images[0, 2:, :2, 1] = 255
    expected = np.zeros((2, 2, 2), np.float32)
    expected[0, 1, 0], expected[1, 0, 1] = 0.3, 1
    np.testing.assert_allclose(halve(images), expected.reshape(1, -1), rtol=1e-6)


def test_bytes_and_the_fractions_they_stand_for_give_equal_rows() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2500, 6, 8, 3), dtype=np.uint8)
    fractions = (images / 255).astype(np.float32)
    assert (2500, 36) == halve(images).shape
    assert halve(images).tobytes() == halve(fractions).tobytes()
    wide = images.astype(np.float64).reshape(2500, 3, 2, 4, 2, 3).mean((2, 4)).reshape(2500, -1) / 255
    np.testing.assert_allclose(halve(images), wide, rtol=1e-6)


def test_the_last_row_and_column_of_an_odd_size_are_left_out() -> None:
    images = np.random.default_rng(1).integers(0, 256, (3, 5, 7, 1), dtype=np.uint8)
    assert halve(images[:, :4, :6]).tolist() == halve(images).tolist()


def test_an_image_of_one_pixels_width_is_refused() -> None:
    with pytest.raises(ValueError, match="images are 1 x 9; to be downsampled by 2 they must be at least 2 x 2"):
        halve(np.zeros((3, 1, 9, 1), np.uint8))


def test_the_closest_is_that_of_all_differences() -> None:
    rng = np.random.default_rng(2)
    rows, among = (rng.random((count, 12), dtype=np.float32) for count in (40, 30))
    apart = np.sqrt(((rows[:, None].astype(np.float64) - among.astype(np.float64)) ** 2).sum(2))
    found = closest(rows, among)
    assert apart.argmin(1).tolist() == found.rows.tolist()
    np.testing.assert_allclose(found.distances, apart.min(1), rtol=1e-12)
    within = np.sqrt(((rows[:, None].astype(np.float64) - rows.astype(np.float64)) ** 2).sum(2))
    np.fill_diagonal(within, np.inf)
    found = closest_other(rows)
    assert within.argmin(1).tolist() == found.rows.tolist()
    np.testing.assert_allclose(found.distances, within.min(1), rtol=1e-12)


def test_no_image_is_its_own_closest_however_many_are_equal() -> None:
    rows = np.array([[0.0], [1], [1], [1], [1], [0.25]], np.float32)
    found = closest_other(rows)
    assert [5, 2, 1, 1, 1, 0] == found.rows.tolist()
    assert [0.25, 0, 0, 0, 0, 0.25] == found.distances.tolist()


def test_one_image_has_no_other() -> None:
    with pytest.raises(ValueError, match="there is one image; to have a closest other there must be at least 2"):
        closest_other(np.zeros((1, 4), np.float32))
