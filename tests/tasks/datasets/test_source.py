"""The state of a data set's files: what changes it if there are few files, and if there are many."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tasks.datasets import catalog, places, source
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset, DatasetError
from tests.tasks.datasets import scans


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A folder that counts as one of many files, of which three are sampled, and that did not change lately."""
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    for module in (source, places, catalog):
        monkeypatch.setattr(module, "MANY_FILES", 10)
    monkeypatch.setattr(source, "SAMPLED", 2)
    monkeypatch.setattr(catalog, "LARGE", 0)
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.setattr(places, "_listed", {})
    folder = scans.classes(tmp_path / "scans")
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() - 100, time.time() - 100))
    return Dataset(f"folder:{folder}")


def image(data: Dataset, name: str) -> Path:
    return Path(data.name.removeprefix("folder:")) / name


def test_digest_of_many_files_is_known_without_a_store(many: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = pin(many)
    listed = places.find(many.name)[1]
    assert places.find(many.name)[1] is listed
    monkeypatch.setattr("tasks.datasets.labelled.read_shape", None)  # no image is read again
    monkeypatch.setattr(places, "_listed", {})
    assert pin(many) == pinned


@pytest.mark.parametrize("change", ["add", "remove", "rename", "replace", "sampled"])
def test_changed_folder_is_read_again(many: Dataset, change: str) -> None:
    pinned = pin(many)
    other = image(many, "cat/02.png")
    match change:
        case "add":
            scans.saved(image(many, "cat/99.png"), scans.pixels(0, 99))
        case "remove":
            other.unlink()
        case "rename":
            other.rename(other.with_name("02b.png"))
        case "replace":
            scans.saved(image(many, "new.png"), scans.pixels(0, 99)).rename(other)
        case "sampled":
            scans.saved(image(many, "cat/00.png"), scans.pixels(0, 99))
    changed = pin(many)
    assert (changed == pinned) == (change == "rename")  # the same images in the same order


def test_image_overwritten_in_place_is_found_by_reading_all(many: Dataset) -> None:
    pinned = pin(many)
    path = scans.saved(image(many, "cat/02.png"), scans.pixels(0, 99))
    assert pin(many) == pinned
    with pytest.raises(DatasetError, match=r"cat/02\.png has changed .* run `engram store verify --data`"):
        catalog.load(pinned).train.pixels(range(8))  # type: ignore[arg-type]
    renewed = catalog.read_again(pinned, {})
    assert renewed.changed == (str(path),)
    assert pin(many).digest == renewed.digest
    assert renewed.digest != pinned.digest
