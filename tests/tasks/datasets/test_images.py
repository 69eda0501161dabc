"""Images by rows: identical from an array, appended to others, or from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tasks.datasets import catalog, labelled
from tasks.datasets.cache_folder import cache_folder
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images, InMemory, as_shape, luma, pixel_bytes
from tasks.datasets.large_images import LargeImages
from tasks.datasets.picture_rows import Concatenated
from tests.tasks.datasets import scans
from tests.tasks.datasets.scans import load_by_rows


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def labelled_images(train: np.ndarray, test: np.ndarray, labels: np.ndarray | None = None) -> Images:
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
    images = labelled_images(noise(3, 4, 4, 1), noise(2, 4, 4, 1))
    with pytest.raises(ValueError, match="read-only"):
        images.train_images[0] = 1


def test_groups_and_origins_are_read_only_and_checked() -> None:
    images = labelled_images(noise(3, 4, 4, 1), noise(2, 4, 4, 1))
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
        labelled_images(noise(3, 4, 4, 1), noise(2, 4, 4, 1), np.array([0, 2, 1]))


def test_splits_of_different_shapes_are_refused() -> None:
    with pytest.raises(DatasetError, match="differ in shape"):
        labelled_images(noise(3, 4, 4, 1), noise(2, 5, 5, 1))


def test_images_without_labels_are_refused() -> None:
    with pytest.raises(DatasetError, match=r"train labels are int64 \(2,\); expected int64 \(3,\)"):
        labelled_images(noise(3, 4, 4, 1), noise(2, 4, 4, 1), np.zeros(2, np.int64))


ROWS = np.array([3, 0, 3, 7])


@pytest.fixture
def scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    return scans.classes(tmp_path / "scans", 9)


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


@pytest.mark.parametrize("shape", ["", "#rgb", "#8x7", "#8x7#grey"])
def test_folder_read_by_rows_equals_loaded_folder(scanned: Path, shape: str) -> None:
    coloured = np.dstack([scans.pixels(0, number) for number in (90, 91, 92)])
    scans.saved(scanned / "dog" / "colour.png", coloured)
    dataset = pin(Dataset(f"folder:{scanned}{shape}"))
    images = load(dataset)
    by_rows = load_by_rows(dataset)
    assert images.shape == by_rows.shape
    assert images.classes == by_rows.classes
    assert images.names == by_rows.names
    assert np.array_equal(images.train_hashes, by_rows.train_hashes)
    for loaded, rows in ((images.train, by_rows.train), (images.test, by_rows.test)):
        assert loaded.labels.tolist() == rows.labels.tolist()
        assert (loaded.images == rows.pixels(np.arange(len(rows)))).all()
    assert (images.train_images[ROWS] == by_rows.train.pixels(ROWS)).all()
    assert by_rows.train.pixels(ROWS[:0]).shape == (0, *images.shape)


def test_only_large_data_sets_are_read_by_rows(scanned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "LARGE", 18 * 6 * 5)
    assert isinstance(load(pin(Dataset(f"folder:{scanned}"))), Images)
    dataset = pin(Dataset(f"folder:{scanned}#rgb"))
    assert isinstance(load(dataset), LargeImages)
    assert not list(cache_folder().glob("*.pixels"))  # no image was decoded


def test_large_set_is_read_from_index_and_cache(scanned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = pin(Dataset(f"folder:{scanned}"))
    pixels = load_by_rows(dataset).train.pixels(ROWS)
    monkeypatch.setattr(labelled, "read_file", None)  # no file is read again
    assert np.array_equal(pixels, load_by_rows(dataset).train.pixels(ROWS))
    assert dataset == pin(Dataset(dataset.name))


def test_damaged_index_is_written_again(scanned: Path) -> None:
    dataset = pin(Dataset(f"folder:{scanned}"))
    load_by_rows(dataset)
    (path,) = cache_folder().glob("*.index")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    load_by_rows(dataset)
    assert path.read_bytes() == content


def test_different_sizes_are_refused_by_header(scanned: Path) -> None:
    scans.saved(scanned / "dog" / "large.png", scans.pixels(0, 0, 9, 9))
    messages = []
    for read in (load, load_by_rows):
        with pytest.raises(DatasetError) as caught:
            read(Dataset(f"folder:{scanned}"))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert load_by_rows(Dataset(f"folder:{scanned}#9x9")).shape == (9, 9, 1)


def test_image_changed_during_use_is_refused(scanned: Path) -> None:
    by_rows = load_by_rows(pin(Dataset(f"folder:{scanned}")))
    scans.saved(scanned / "cat" / "01.png", scans.pixels(1, 5))
    with pytest.raises(DatasetError, match=r"cat/01\.png has changed since the data set was opened"):
        by_rows.train.pixels(np.arange(14))


def test_damaged_pixels_are_named_when_read(scanned: Path) -> None:
    scans.damage(scanned / "cat" / "01.png")
    by_rows = load_by_rows(Dataset(f"folder:{scanned}"))
    with pytest.raises(DatasetError, match=r"cat/01\.png cannot be read as an image"):
        by_rows.train.pixels(np.arange(14))


def test_other_data_than_pinned_are_refused(scanned: Path) -> None:
    with pytest.raises(DatasetError, match="is not the one that was pinned"):
        load_by_rows(Dataset(f"folder:{scanned}", "0" * 64))


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_cut_image_is_named_before_images_are_read_by_rows(tmp_path: Path, suffix: str) -> None:
    folder = scans.classes(tmp_path / "scans")
    path = folder / "cat" / f"cut.{suffix}"
    Image.fromarray(np.tile(scans.pixels(0, 0), (20, 20))).resize((5, 6)).save(path)
    data = Dataset(f"folder:{folder}#5x6")
    load_by_rows(data)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DatasetError, match=rf"{path} cannot be read as an image"):
        load_by_rows(data)
