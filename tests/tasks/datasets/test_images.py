"""Images by rows: identical from an array, appended to others, or from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tasks.datasets import catalog
from tasks.datasets.catalog import load, open_pictures, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images, InMemory, as_shape, luma, pixel_bytes
from tasks.datasets.picture_rows import Concatenated
from tasks.worker import hardware
from tests.tasks.datasets import scans


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def labelled(train: np.ndarray, test: np.ndarray, labels: np.ndarray | None = None) -> Images:
    zeros = np.zeros(len(train), np.int64) if labels is None else labels
    return Images(train, zeros, test, np.zeros(len(test), np.int64), classes=2)


def test_grey_equals_pillows_conversion() -> None:
    images = noise(3, 20, 30, 3)
    expected = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in images])[..., None]
    np.testing.assert_array_equal(expected, luma(images))


def test_grey_weighs_colours_by_luma() -> None:
    colours = np.array([[[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]]], np.uint8)
    assert luma(colours).ravel().tolist() == [76, 150, 29, 255]  # 255 x .299, .587, .114, and their sum


def test_same_shape_is_unchanged() -> None:
    images = noise(2, 28, 28, 1)
    assert as_shape(images, (28, 28, 1)) is images


def test_colour_images_become_grey_and_smaller() -> None:
    images = noise(2, 32, 32, 3)
    small = as_shape(images, (28, 28, 1))
    expected = Image.fromarray(luma(images)[1, ..., 0]).resize((28, 28), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(np.asarray(expected), small[1, ..., 0])
    assert small.shape == (2, 28, 28, 1)
    assert small.dtype == np.uint8


def test_grey_images_become_rgb_and_larger() -> None:
    large = as_shape(noise(2, 28, 28, 1), (32, 32, 3))
    assert large.shape == (2, 32, 32, 3)
    np.testing.assert_array_equal(large[..., 0], large[..., 2])


@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 1), (20, 40, 3)])
def test_images_are_shaped_in_parts_identically(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]) -> None:
    images = noise(7, 32, 32, 3)
    at_once = as_shape(images, shape)
    monkeypatch.setattr("tasks.datasets.images.TOGETHER", 3 * 32 * 32)
    np.testing.assert_array_equal(at_once, as_shape(images, shape))


def test_constant_image_stays_constant() -> None:
    assert set(as_shape(np.full((1, 32, 32, 3), 77, np.uint8), (28, 28, 1)).ravel().tolist()) == {77}


def test_colour_images_stay_coloured_when_resized() -> None:
    images = np.zeros((1, 8, 8, 3), np.uint8)
    images[..., 0] = 200
    assert as_shape(images, (4, 4, 3))[0, 2, 2].tolist() == [200, 0, 0]


def test_two_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="channels is 2; it must be 1 or 3"):
        as_shape(noise(1, 4, 4, 1), (4, 4, 2))


def test_images_are_read_only() -> None:
    images = labelled(noise(3, 4, 4, 1), noise(2, 4, 4, 1))
    with pytest.raises(ValueError, match="read-only"):
        images.train_images[0] = 1


def test_groups_and_origins_are_read_only_and_checked() -> None:
    images = labelled(noise(3, 4, 4, 1), noise(2, 4, 4, 1))
    groups = np.arange(3)
    origins = noise(3, 32)
    about = replace(images, train_groups=groups, train_origins=origins)
    assert (groups.flags.writeable, origins.flags.writeable) == (False, False)
    with pytest.raises(DatasetError, match=r"the groups of the training images are \(2,\); expected \(3,\)"):
        replace(about, train_groups=groups[:2])
    with pytest.raises(DatasetError, match=r"the origins of the training images are \(3, 5\); expected \(3, 32\)"):
        replace(about, train_origins=origins[:, :5])


def test_label_outside_the_classes_is_refused() -> None:
    with pytest.raises(DatasetError, match="train labels range from 0 to 2; expected 0 to 1"):
        labelled(noise(3, 4, 4, 1), noise(2, 4, 4, 1), np.array([0, 2, 1]))


def test_splits_of_different_shapes_are_refused() -> None:
    with pytest.raises(DatasetError, match="differ in shape"):
        labelled(noise(3, 4, 4, 1), noise(2, 5, 5, 1))


def test_images_without_labels_are_refused() -> None:
    with pytest.raises(DatasetError, match=r"train labels are int64 \(2,\); expected int64 \(3,\)"):
        labelled(noise(3, 4, 4, 1), noise(2, 4, 4, 1), np.zeros(2, np.int64))


ROWS = np.array([3, 0, 3, 7])


@pytest.fixture
def scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    return pin(Dataset(f"folder:{scans.classes(tmp_path / 'scans', 9)}#8x7#rgb"))


def test_rows_come_in_requested_order() -> None:
    images = load(Dataset("digits"))
    assert (images.train_images[ROWS] == images.train.pixels(ROWS)).all()
    assert len(images.train) == 1437
    assert len(images.test) == 360
    assert images.test.shape == (28, 28, 1)
    assert pixel_bytes(images) == 1797 * 28 * 28


def test_appended_images_have_the_following_rows() -> None:
    first, more = (np.arange(start, start + 12, dtype=np.uint8).reshape(3, 2, 2, 1) for start in (0, 100))
    rows = Concatenated((InMemory(first, np.array([0, 1, 2])), InMemory(more, np.array([5, 6, 7]))))
    assert len(rows) == 6
    assert rows.shape == (2, 2, 1)
    assert rows.labels.tolist() == [0, 1, 2, 5, 6, 7]
    assert rows.pixels(np.array([0, 4, 1, 5]))[:, 0, 0, 0].tolist() == [0, 104, 4, 108]
    assert rows.pixels(np.array([2]))[:, 0, 0, 0].tolist() == [8]


@pytest.mark.parametrize("storage", ["cache", "files"])
def test_folder_read_by_rows_equals_loaded_folder(scanned: Dataset, storage: catalog.Storage) -> None:
    images = load(scanned)
    by_rows = open_pictures(scanned, storage)
    assert not isinstance(by_rows, Images)
    assert images.shape == by_rows.shape
    assert images.classes == by_rows.classes
    assert images.names == by_rows.names
    for loaded, rows in ((images.train, by_rows.train), (images.test, by_rows.test)):
        assert loaded.labels.tolist() == rows.labels.tolist()
        assert (loaded.images == rows.pixels(np.arange(len(rows)))).all()
    assert (images.train_images[ROWS] == by_rows.train.pixels(ROWS)).all()
    assert by_rows.train.pixels(ROWS[:0]).shape == (0, 8, 7, 3)


def test_any_data_set_is_readable_from_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path))
    images = load(Dataset("digits"))
    by_rows = open_pictures(Dataset("digits"), "cache")
    assert (images.train_images == by_rows.train.pixels(np.arange(1437))).all()
    assert images.test_labels.tolist() == by_rows.test.labels.tolist()


def test_only_large_data_sets_are_not_loaded(scanned: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 18 * 8 * 7 * 3
    monkeypatch.setattr(hardware, "available_memory", lambda: 2 * size)
    assert isinstance(open_pictures(scanned), Images)
    monkeypatch.setattr(hardware, "available_memory", lambda: 2 * size - 1)
    catalog._loaded.pop(scanned.digest)
    assert not isinstance(open_pictures(scanned), Images)
    assert scanned == pin(scanned)  # without decoding an image
    for path in (Path(scanned.name.removeprefix("folder:").partition("#")[0])).rglob("*.png"):
        path.unlink()
    assert len(open_pictures(scanned).train) == 14  # from the cache alone


def test_image_changed_during_use_is_refused(scanned: Dataset, tmp_path: Path) -> None:
    by_rows = open_pictures(scanned, "files")
    scans.saved(tmp_path / "scans" / "cat" / "01.png", scans.pixels(1, 5))
    with pytest.raises(DatasetError, match=r"cat/01\.png has changed since the data set was opened"):
        by_rows.train.pixels(np.arange(14))


def test_data_unreadable_by_rows_are_refused(scanned: Dataset) -> None:
    with pytest.raises(DatasetError, match="'digits' cannot be decoded by rows; folder:PATH and list:FILE can"):
        open_pictures(Dataset("digits"), "files")
    with pytest.raises(DatasetError, match="is not the one that was pinned"):
        open_pictures(Dataset(scanned.name, "0" * 64), "files")
    with pytest.raises(DatasetError, match="is not the one that was pinned"):
        open_pictures(Dataset(scanned.name, "0" * 64), "cache")
    with pytest.raises(ValueError, match="storage is 'disk'; it must be one of auto, memory, cache, files"):
        open_pictures(scanned, "disk")  # type: ignore[arg-type]
