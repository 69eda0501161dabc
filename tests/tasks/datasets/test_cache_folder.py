"""The bound of the image cache: what is removed, what is kept, and what is refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasks.audits.deja_vu import PRESETS as DEJA_VU
from tasks.audits.deja_vu import cached_images
from tasks.datasets import cache_folder
from tasks.datasets.cache_folder import Room, make_room, open_in_use
from tasks.datasets.cache_need import cache_need, cache_notes, check_cache, files_of
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset, DatasetError
from tests.tasks.datasets import scans

OLD, MIDDLE, NEW = (letter * 64 + ".pixels" for letter in "abc")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files of 100 bytes, used one after another, and one of another program."""
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path))
    for second, name in enumerate((OLD, MIDDLE, NEW, "notes.txt")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (second, second))
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_files_unused_for_longest_are_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE_SIZE", "400")
    make_room(0)
    assert len(names(cache)) == 4
    make_room(150)
    assert names(cache) == {NEW, "notes.txt"}


def test_file_in_use_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE_SIZE", "400")
    with open_in_use(cache / OLD):
        make_room(100)
        assert names(cache) == {OLD, NEW, "notes.txt"}
        others = r"its other files of 0\.00 GB cannot be removed; raise ENGRAM_CACHE_SIZE"
        with pytest.raises(DatasetError, match=rf"ENGRAM_CACHE_SIZE allows 0\.00 GB, and {others}"):
            make_room(201)
        assert names(cache) == {OLD, NEW, "notes.txt"}  # nothing is removed in vain
    make_room(300)
    assert names(cache) == {"notes.txt"}


def test_full_disk_is_reported_with_its_size() -> None:
    room = Room(used=0, removable=(), free=2 * 10**9, allowed=None)
    with pytest.raises(DatasetError, match=r"need 3\.0 GB in the cache .* but the disk has 2\.0 GB free"):
        room.check(3 * 10**9)
    room.check(2 * 10**9)


def test_invalid_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE_SIZE", "many")
    with pytest.raises(DatasetError, match="ENGRAM_CACHE_SIZE: 'many' is not a size in bytes; write it like 64GB"):
        cache_folder.allowed_size()


def test_need_of_large_set_is_known_before_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    folder = scans.classes(tmp_path / "scans")
    data = [pin(Dataset(f"folder:{folder}{option}")) for option in ("", "#inverted2")]
    assert cache_notes(files_of(data), 0) == []
    monkeypatch.setattr("tasks.datasets.catalog.LARGE", 0)
    monkeypatch.setattr("tasks.datasets.catalog._loaded", {})
    files = list(files_of(data))
    (note,) = cache_notes(files, 0)
    assert note.startswith("image cache: 0.00 GB for folder:scans")
    assert cache_need(files, 0)[1] == 12 * (6 * 5 + 12)  # planted images are in the same file
    check_cache(files, 0)
    monkeypatch.setenv("ENGRAM_CACHE_SIZE", "500")
    with pytest.raises(DatasetError, match="ENGRAM_CACHE_SIZE allows"):
        check_cache(files, 0)
    monkeypatch.delenv("ENGRAM_CACHE_SIZE")
    scans.load_by_rows(data[0]).train.pixels(np.arange(2))
    assert cache_notes(files, 0) == []  # it is written


def test_squares_of_training_sets_are_counted_unless_they_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path))
    config = DEJA_VU["quickstart"]
    data = pin(config.data)
    files = cached_images(replace(config, data=data))
    side = min(2 * config.training.augmentation.resolution, 32)
    images = config.per_class * 10
    assert [file.size for file in files] == [images * (3 * side**2 + 12)] * 2
    names, needed = cache_need(files, memory=0)
    assert names == [f"squares of {side} x {side} of part {part} of digits-on-photos" for part in ("A", "B")]
    assert needed == sum(file.size for file in files)
    assert cache_need(files, memory=2 * files[0].size) == ([], 0)
