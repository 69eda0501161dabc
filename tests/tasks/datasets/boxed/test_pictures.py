"""Squares in memory and squares mapped from a file have the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tasks.datasets import catalog
from tasks.datasets.boxed import pictures as boxed_pictures
from tasks.datasets.boxed.picture_files import PictureFiles
from tasks.datasets.boxed.pictures import fill_squares
from tasks.datasets.catalog import load_with_boxes, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import resize_images
from tasks.worker import hardware
from tests.tasks.datasets.boxed import trees

ROWS = np.array([3, 0, 21, 3, 7])


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PictureFiles:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(catalog, "_boxed", {})
    loaded = load_with_boxes(pin(Dataset(f"imagenet:{trees.imagenet(tmp_path / 'imagenet')}")))
    assert isinstance(loaded, PictureFiles)
    return loaded


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*.squares.npy"))


def test_squares_are_entire_images_stretched(pictures: PictureFiles, tmp_path: Path) -> None:
    squares = pictures.squares(ROWS, 20)
    assert squares.shape == (5, 20, 20, 3)
    for row, square in zip(ROWS, squares, strict=True):
        np.testing.assert_array_equal(resize_images(pictures.picture(row)[None], 20, 20)[0], square)
    assert files(tmp_path) == []
    with pytest.raises(ValueError, match="side is 0; it must be at least 1"):
        pictures.squares(ROWS, 0)


def test_large_squares_are_memory_mapped(
    pictures: PictureFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = pictures.squares(ROWS, 20)
    monkeypatch.setattr(hardware, "available_memory", lambda: 2 * in_memory.nbytes - 1)
    monkeypatch.setattr(boxed_pictures, "PORTION", 2)  # several portions
    mapped = pictures.squares(ROWS, 20)
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable
    np.testing.assert_array_equal(in_memory, mapped)
    assert len(files(tmp_path)) == 1
    changed = files(tmp_path)[0].stat().st_mtime_ns
    pictures.squares(ROWS, 20)
    assert changed == files(tmp_path)[0].stat().st_mtime_ns
    np.testing.assert_array_equal(in_memory[::-1], pictures.squares(ROWS[::-1], 20))
    assert len(files(tmp_path)) == 2
    monkeypatch.setattr(hardware, "available_memory", lambda: 2 * in_memory.nbytes)
    assert not isinstance(pictures.squares(ROWS, 20), np.memmap)


def test_incomplete_file_is_written_again(
    pictures: PictureFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "available_memory", lambda: 1)
    expected = np.array(pictures.squares(ROWS, 20))
    (path,) = files(tmp_path)
    for damaged in (path.read_bytes()[:-1], b"", b"no array at all"):
        path.unlink()
        path.write_bytes(damaged)
        np.testing.assert_array_equal(expected, pictures.squares(ROWS, 20))
    assert [path] == files(tmp_path)


def test_full_cache_is_reported(pictures: PictureFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "available_memory", lambda: 1)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(
        DatasetError, match="cannot be written: Not a directory; set ENGRAM_CACHE to a folder with free space"
    ):
        pictures.squares(ROWS, 20)


def test_squares_are_decoded_in_portions(pictures: PictureFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    portions: list[int] = []
    fill = fill_squares

    def counted(out: np.ndarray, images: PictureFiles, rows: np.ndarray) -> None:
        portions.append(len(out))
        fill(out, images, rows)

    monkeypatch.setattr(hardware, "available_memory", lambda: 1)
    monkeypatch.setattr(boxed_pictures, "PORTION", 4)
    monkeypatch.setattr(boxed_pictures, "fill_squares", counted)
    pictures.squares(np.arange(10), 8)
    assert portions == [4, 4, 2]
