"""Data sets that are read again: which images have changed, and what the next run uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.inspection.data_check import check_data, requested_data
from orchestrator.store import open_store
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tests.tasks.datasets import scans


def test_changed_and_missing_data_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    store = open_store(tmp_path / "store")
    folder = scans.classes(tmp_path / "scans")
    pinned = catalog.pin(Dataset(f"folder:{folder}"), store.digests())
    (check,) = check_data(store, [pinned])
    assert (check.state, check.note) == ("agrees", f"digest {pinned.digest}")
    path = scans.saved(folder / "cat" / "03.png", scans.pixels(0, 99))
    gone = Dataset(f"folder:{tmp_path / 'gone'}")
    changed, missing = check_data(store, [pinned, gone])
    assert changed.state == "changed"
    assert changed.note.endswith(f"its digest is now {catalog.pin(Dataset(pinned.name), store.digests()).digest}")
    assert (missing.state, missing.name) == ("unchecked", gone.name)
    assert path.exists()


def test_damaged_image_of_large_set_is_found_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(catalog, "LARGE", 0)
    monkeypatch.setattr(catalog, "_loaded", {})
    store = open_store(tmp_path / "store")
    folder = scans.classes(tmp_path / "scans")
    path = folder / "cat" / "03.png"
    scans.damage(path)
    data = Dataset(f"folder:{folder}")
    assert [check.state for check in check_data(store, [data])] == ["agrees"]
    (check,) = check_data(store, [data], decode=True)
    assert check.state == "unchecked"
    assert check.note.startswith(f"{path} cannot be read as an image")
    scans.saved(path, scans.pixels(0, 3))
    (check,) = check_data(store, [data], decode=True)
    assert (check.state, check.notes) == ("agrees", ())


def test_word_is_a_data_set_or_a_run(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert requested_data(store, "digits#14x14") == [Dataset("digits#14x14")]
    assert requested_data(store, "folder:scans") == [Dataset("folder:scans")]
    assert requested_data(store, None) == []
    with pytest.raises(SpecError, match="unknown run 'toys'"):
        requested_data(store, "toys")
