"""Pictures by rows: the same whether they lie in an array, behind others, or in their files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tasks import hardware
from tasks.datasets import catalog
from tasks.datasets.catalog import load, open_pictures, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images
from tasks.datasets.picture_rows import Extended, InMemory, size
from tests.tasks.datasets import scans

ROWS = np.array([3, 0, 3, 7])


@pytest.fixture
def scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    return pin(Dataset(f"folder:{scans.classes(tmp_path / 'scans', 9)}#8x7#rgb"))


def test_rows_come_in_the_order_in_which_they_are_asked_for_and_as_often() -> None:
    images = load(Dataset("digits"))
    assert (images.train_images[ROWS] == images.train.pixels(ROWS)).all()
    assert (1437, 360, (28, 28, 1)) == (len(images.train), len(images.test), images.test.shape)
    assert 1797 * 28 * 28 == size(images)


def test_pictures_behind_others_have_the_rows_after_theirs() -> None:
    first, more = (np.arange(start, start + 12, dtype=np.uint8).reshape(3, 2, 2, 1) for start in (0, 100))
    rows = Extended(InMemory(first, np.array([0, 1, 2])), more, np.array([5, 6, 7]))
    assert (6, (2, 2, 1), [0, 1, 2, 5, 6, 7]) == (len(rows), rows.shape, rows.labels.tolist())
    assert [0, 104, 4, 108] == rows.pixels(np.array([0, 4, 1, 5]))[:, 0, 0, 0].tolist()
    assert [8] == rows.pixels(np.array([2]))[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("held", ["cache", "files"])
def test_a_folder_read_by_rows_is_what_it_is_when_loaded(scanned: Dataset, held: catalog.Held) -> None:
    images, by_rows = load(scanned), open_pictures(scanned, held)
    assert not isinstance(by_rows, Images)
    assert (images.shape, images.classes, images.names) == (by_rows.shape, by_rows.classes, by_rows.names)
    for whole, rows in ((images.train, by_rows.train), (images.test, by_rows.test)):
        assert whole.labels.tolist() == rows.labels.tolist()
        assert (whole.images == rows.pixels(np.arange(len(rows)))).all()
    assert (images.train_images[ROWS] == by_rows.train.pixels(ROWS)).all()
    assert (0, 8, 7, 3) == by_rows.train.pixels(ROWS[:0]).shape


def test_any_data_set_can_be_read_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path))
    images, by_rows = load(Dataset("digits")), open_pictures(Dataset("digits"), "cache")
    assert (images.train_images == by_rows.train.pixels(np.arange(1437))).all()
    assert images.test_labels.tolist() == by_rows.test.labels.tolist()


def test_only_what_would_take_half_of_the_memory_is_not_loaded(
    scanned: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 18 * 8 * 7 * 3
    monkeypatch.setattr(hardware, "available_memory", lambda: 2 * taken)
    assert isinstance(open_pictures(scanned), Images)
    monkeypatch.setattr(hardware, "available_memory", lambda: 2 * taken - 1)
    catalog._loaded.pop(scanned.digest)
    assert not isinstance(open_pictures(scanned), Images)
    assert scanned == pin(scanned)  # without a picture decoded
    for path in (Path(scanned.name.removeprefix("folder:").partition("#")[0])).rglob("*.png"):
        path.unlink()
    assert 14 == len(open_pictures(scanned).train)  # from the cache alone


def test_a_picture_that_changes_while_it_is_in_use_is_refused_by_name(scanned: Dataset, tmp_path: Path) -> None:
    by_rows = open_pictures(scanned, "files")
    scans.saved(tmp_path / "scans" / "cat" / "01.png", scans.pixels(1, 5))
    with pytest.raises(DatasetError, match=r"cat/01\.png has changed since the data set was opened"):
        by_rows.train.pixels(np.array([0]))


def test_what_cannot_be_read_by_rows_is_refused_in_a_line(scanned: Dataset) -> None:
    with pytest.raises(DatasetError, match="'digits' cannot be decoded by rows; folder:PATH and list:FILE can"):
        open_pictures(Dataset("digits"), "files")
    with pytest.raises(DatasetError, match="is not the one that was pinned"):
        open_pictures(Dataset(scanned.name, "0" * 64), "files")
    with pytest.raises(DatasetError, match="is not the one that was pinned"):
        open_pictures(Dataset(scanned.name, "0" * 64), "cache")
    with pytest.raises(ValueError, match="held is 'disk'; it must be one of auto, memory, cache, files"):
        open_pictures(scanned, "disk")  # type: ignore[arg-type]
