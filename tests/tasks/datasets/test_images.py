import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images, as_shape, decode_picture, luma


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def labelled(train: np.ndarray, test: np.ndarray, labels: np.ndarray | None = None) -> Images:
    zeros = np.zeros(len(train), np.int64) if labels is None else labels
    return Images(train, zeros, test, np.zeros(len(test), np.int64), classes=2)


def test_grey_is_what_pillow_makes_of_rgb() -> None:
    images = noise(3, 20, 30, 3)
    expected = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in images])[..., None]
    np.testing.assert_array_equal(expected, luma(images))


def test_grey_weighs_the_colours_as_the_eye_does() -> None:
    colours = np.array([[[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]]], np.uint8)
    assert [76, 150, 29, 255] == luma(colours).ravel().tolist()  # 255 x .299, .587, .114, and their sum


def test_the_same_shape_is_left_as_it_is() -> None:
    images = noise(2, 28, 28, 1)
    assert as_shape(images, (28, 28, 1)) is images


def test_colour_images_become_grey_and_smaller() -> None:
    images = noise(2, 32, 32, 3)
    small = as_shape(images, (28, 28, 1))
    expected = Image.fromarray(luma(images)[1, ..., 0]).resize((28, 28), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(np.asarray(expected), small[1, ..., 0])
    assert ((2, 28, 28, 1), np.uint8) == (small.shape, small.dtype)


def test_grey_images_become_rgb_and_larger() -> None:
    large = as_shape(noise(2, 28, 28, 1), (32, 32, 3))
    assert (2, 32, 32, 3) == large.shape
    np.testing.assert_array_equal(large[..., 0], large[..., 2])


@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 1), (20, 40, 3)])
def test_many_images_are_shaped_as_a_few_are(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]) -> None:
    images = noise(7, 32, 32, 3)
    at_once = as_shape(images, shape)
    monkeypatch.setattr("tasks.datasets.images.TOGETHER", 3 * 32 * 32)
    np.testing.assert_array_equal(at_once, as_shape(images, shape))


def test_a_constant_image_stays_constant_whatever_its_size() -> None:
    assert {77} == set(as_shape(np.full((1, 32, 32, 3), 77, np.uint8), (28, 28, 1)).ravel().tolist())


def test_colour_images_stay_coloured_when_resized() -> None:
    images = np.zeros((1, 8, 8, 3), np.uint8)
    images[..., 0] = 200
    assert [200, 0, 0] == as_shape(images, (4, 4, 3))[0, 2, 2].tolist()


def test_two_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="channels is 2; it must be 1 or 3"):
        as_shape(noise(1, 4, 4, 1), (4, 4, 2))


def test_images_are_read_only() -> None:
    images = labelled(noise(3, 4, 4, 1), noise(2, 4, 4, 1))
    with pytest.raises(ValueError, match="read-only"):
        images.train_images[0] = 1


def test_groups_and_origins_are_read_only_and_one_for_each_training_image() -> None:
    images = labelled(noise(3, 4, 4, 1), noise(2, 4, 4, 1))
    groups, origins = np.arange(3), noise(3, 32)
    about = replace(images, train_groups=groups, train_origins=origins)
    assert (False, False) == (groups.flags.writeable, origins.flags.writeable)
    with pytest.raises(DatasetError, match=r"the groups of the training images are \(2,\); expected \(3,\)"):
        replace(about, train_groups=groups[:2])
    with pytest.raises(DatasetError, match=r"the origins of the training images are \(3, 5\); expected \(3, 32\)"):
        replace(about, train_origins=origins[:, :5])


def test_a_label_outside_the_classes_is_refused() -> None:
    with pytest.raises(DatasetError, match="train labels reach from 0 to 2; expected 0 to 1"):
        labelled(noise(3, 4, 4, 1), noise(2, 4, 4, 1), np.array([0, 2, 1]))


def test_splits_of_different_shapes_are_refused() -> None:
    with pytest.raises(DatasetError, match="differ in shape"):
        labelled(noise(3, 4, 4, 1), noise(2, 5, 5, 1))


def test_images_without_labels_are_refused() -> None:
    with pytest.raises(DatasetError, match=r"train labels are int64 \(2,\); expected int64 \(3,\)"):
        labelled(noise(3, 4, 4, 1), noise(2, 4, 4, 1), np.zeros(2, np.int64))


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("1", 1), ("RGB", 3), ("P", 3), ("RGBA", 3)])
def test_a_picture_is_grey_or_rgb(mode: str, channels: int) -> None:
    buffer = io.BytesIO()
    Image.new(mode, (5, 4)).save(buffer, "PNG")
    assert (4, 5, channels) == decode_picture(buffer.getvalue()).shape
