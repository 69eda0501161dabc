import hashlib

import numpy as np
from sklearn.datasets import load_digits

from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.embedded import bilinear, enlarge_images, squares


def test_digits_are_scikit_learns_every_fifth_for_testing() -> None:
    images = load(Dataset("digits"))
    labels = load_digits().target
    np.testing.assert_array_equal(labels[::5], images.test_labels)
    np.testing.assert_array_equal(np.delete(labels, np.s_[::5]), images.train_labels)
    assert ((1437, 28, 28, 1), (360, 28, 28, 1), 10) == (
        images.train_images.shape,
        images.test_images.shape,
        images.classes,
    )


def test_a_digit_is_enlarged_by_linear_interpolation_between_pixel_centres() -> None:
    digit = load_digits().images[5]
    places = np.clip((np.arange(28) + 0.5) * 8 / 28 - 0.5, 0, 7)
    rows = np.stack([np.interp(places, np.arange(8), column) for column in digit.T], axis=1)
    both = np.stack([np.interp(places, np.arange(8), row) for row in rows])
    test_image = load(Dataset("digits")).test_images[1, ..., 0]
    assert np.abs(both * 255 / 16 - test_image).max() <= 0.5 + 1e-9


def test_interpolation_weights_of_every_pixel_add_up_to_one() -> None:
    assert {2 * 28} == set(bilinear(8, 28).sum(axis=1).tolist())


def test_full_ink_becomes_255_and_half_rounds_up() -> None:
    assert {255} == set(enlarge_images(np.full((1, 8, 8), 16), 28).ravel().tolist())
    assert {128} == set(enlarge_images(np.full((1, 8, 8), 8), 28).ravel().tolist())  # 127.5


def test_the_bytes_of_the_digits_are_the_same_everywhere() -> None:
    images = load(Dataset("digits"))
    sha = hashlib.sha256(images.train_images.tobytes() + images.test_images.tobytes()).hexdigest()
    assert "2d48fe42f64bde9afa8b597166d652b17b7f02cf1e5372cb6dd1a7fa9c4747bc" == sha


def test_photos_are_grey_patches_of_no_class() -> None:
    images = load(Dataset("photos"))
    assert ((132, 28, 28, 1), (528, 28, 28, 1)) == (images.train_images.shape, images.test_images.shape)
    assert {0} == set(images.train_labels.tolist()) | set(images.test_labels.tolist())
    assert 20 < images.test_images.std(axis=(1, 2, 3)).mean() < 80  # pictures of something


def test_squares_tile_an_image_without_overlap() -> None:
    image = np.arange(5 * 7, dtype=np.uint8).reshape(5, 7, 1)
    expected = [[0, 1, 7, 8], [2, 3, 9, 10], [4, 5, 11, 12], [14, 15, 21, 22], [16, 17, 23, 24], [18, 19, 25, 26]]
    assert expected == squares(image, 2).reshape(-1, 4).tolist()


def test_embedded_digests_are_fixed() -> None:
    digests = [pin(Dataset(name)).digest[:16] for name in ("digits", "photos")]
    assert ["31677a82d16a6273", "25f705d19765c69a"] == digests
