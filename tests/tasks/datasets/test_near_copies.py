"""Near copies are found, different images are not reported, and notes count the copies of a data set."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from tasks.datasets import catalog
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.near_copies import find_near_copies
from tasks.datasets.notes import data_notes, examine_images


def blurred(seed: int, side: int = 32) -> Image.Image:
    """A smooth colour image, similar to a photograph."""
    noise = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), np.uint8)
    return Image.fromarray(noise).resize((side, side), Image.Resampling.BICUBIC)


def compressed(image: Image.Image, quality: int = 60) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


CHANGES = {
    "compressed": compressed,
    "a little brighter": lambda image: image.point(lambda level: min(255, level + 2)),
    "sharpened": lambda image: image.filter(ImageFilter.UnsharpMask(1, 30, 0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_are_found(change: str) -> None:
    images = [blurred(seed) for seed in range(40)]
    pixels = np.stack([np.asarray(image) for image in (*images, *(CHANGES[change](image) for image in images[:20]))])
    assert set(find_near_copies(pixels)) == {(row, 40 + row) for row in range(20)}


def test_other_images_are_no_near_copies() -> None:
    assert find_near_copies(np.stack([np.asarray(blurred(seed)) for seed in range(500)])) == []
    assert find_near_copies(load(Dataset("digits")).train_images) == []
    assert find_near_copies(np.full((50, 16, 16, 1), 7, np.uint8)) == []


def test_exact_copies_are_no_near_copies() -> None:
    image = np.asarray(blurred(0))
    assert find_near_copies(np.stack([image, image])) == []


def test_copies_are_noted_when_a_run_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for label in range(2):
        for split, count in (("train", 6), ("test", 2)):
            folder = tmp_path / "scans" / split / str(label)
            folder.mkdir(parents=True)
            for number in range(count):
                blurred(100 * label + number).save(folder / f"{number}.png")
        blurred(100 * label).save(tmp_path / "scans" / "train" / str(label) / "copy.png")
    compressed(blurred(5)).save(tmp_path / "scans" / "train" / "0" / "near.png")
    data = pin(Dataset(f"folder:{tmp_path / 'scans'}"))
    exact, in_test, near = data_notes(data, {})
    assert "2 groups of exact copies among the training images (4 images)" in exact
    assert "4 of 4 test images are exact copies of training images" in in_test
    assert "2 training images are nearly equal to another, such as " in near
    assert {name for name in ("5.png", "near.png") if f"/train/0/{name}" in near} == {"5.png", "near.png"}
    monkeypatch.setattr(catalog, "LARGE", 0)
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    known_notes: dict[str, str] = {}
    *of_files, unexamined = data_notes(data, known_notes)
    assert of_files == [exact, in_test]
    assert "only the levels of 19 of them were examined, and near copies were not searched" in unexamined
    assert unexamined.endswith(f"use engram store verify --data --images {data.name}")
    examine_images(data, known_notes)
    assert data_notes(data, known_notes) == (exact, in_test, near)
