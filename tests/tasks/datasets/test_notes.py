"""Notes about a user's data: found once, remembered by content, and printed by `plan` and `run`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tasks.datasets import catalog, notes
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images


def noise_folder(folder: Path) -> Dataset:
    """Two classes of six noise images each, pinned."""
    generator = np.random.default_rng(0)
    for name in ("ill", "well"):
        (folder / name).mkdir(parents=True)
        for number in range(6):
            Image.fromarray(generator.integers(0, 256, (8, 8), np.uint8)).save(folder / name / f"{number}.png")
    return catalog.pin(Dataset(f"folder:{folder}"))


def count_images(_: Dataset, images: Images) -> tuple[str, ...]:
    return (f"{len(images.train_images)} training images",)


def test_every_rule_adds_its_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = noise_folder(tmp_path / "scans")
    monkeypatch.setattr(notes, "RULES", (count_images, count_images))
    expected = f"folder:{tmp_path}/scans: 8 training images"
    assert notes.data_notes(data, {}) == (expected, expected)


def test_notes_are_remembered_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = noise_folder(tmp_path / "one")
    same = noise_folder(tmp_path / "same")
    monkeypatch.setattr(notes, "RULES", (count_images,))
    stored_notes: dict[str, str] = {}
    notes.data_notes(one, stored_notes)
    monkeypatch.setattr(notes, "RULES", ())
    assert notes.data_notes(same, stored_notes) == (f"folder:{tmp_path}/same: 8 training images",)


@pytest.mark.parametrize("name", ["digits", "facts", "tickets"])
def test_published_sets_have_no_notes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "RULES", (count_images,))
    assert notes.data_notes(catalog.pin(Dataset(name)), {}) == ()
