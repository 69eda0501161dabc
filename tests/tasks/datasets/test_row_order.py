"""Rows of a user's data are numbered at random within classes, by every route."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tasks.datasets.catalog import files, load, load_texts, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.row_order import draw_class_order, draw_group_order
from tests.tasks.datasets.scans import load_by_rows

CLASSES = 4
EACH = 25


def test_every_prefix_has_classes_in_proportion() -> None:
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    order = draw_class_order(labels)
    assert sorted(order) == list(range(100))
    for size in range(1, 101):
        counts = np.bincount(labels[order[:size]], minlength=3)
        assert np.all(np.abs(counts - size * np.array([0.6, 0.3, 0.1])) < 1.5)


def test_rows_of_a_class_are_shuffled() -> None:
    order = draw_class_order(np.zeros(100, int))
    assert np.count_nonzero(order == np.arange(100)) < 10
    assert not np.array_equal(draw_class_order(np.zeros(100, int), "test"), order)


def test_groups_keep_their_rows_in_order() -> None:
    order = draw_group_order(list("aabbbcadd"))
    assert sorted(order) == list(range(9))
    group_letters = "".join("aabbbcadd"[row] for row in order)
    assert [group_letters.count(group * size) for group, size in zip("abcd", (3, 3, 1, 2), strict=True)] == [1] * 4
    assert [row for row in order if row in (0, 1, 6)] == [0, 1, 6]


def write_folder(folder: Path) -> Path:
    """Write images of four classes; the grey level identifies the file."""
    for split, count in (("train", EACH), ("test", 2)):
        for label in range(CLASSES):
            (folder / split / str(label)).mkdir(parents=True)
            for number in range(count):
                level = np.full((4, 4), label * EACH + number, np.uint8)
                Image.fromarray(level).save(folder / split / str(label) / f"{number:02}.png")
    return folder


def name_folder(folder: Path) -> str:
    return f"folder:{write_folder(folder)}"


def name_list(folder: Path) -> str:
    folder.mkdir()
    path = folder / "list.csv"
    with path.open("w", newline="") as text:
        lines = csv.writer(text)
        lines.writerow(["path", "label", "split"])
        for file in sorted(write_folder(folder / "images").rglob("*.png")):
            lines.writerow([file, file.parent.name, file.parent.parent.name])
    return f"list:{path}"


def name_parquet(folder: Path) -> str:
    for split in ("train", "test"):
        paths = sorted((write_folder(folder / split) / split).rglob("*.png"))
        rows = {"image": [file.read_bytes() for file in paths], "label": [int(file.parent.name) for file in paths]}
        pq.write_table(pa.table(rows), folder / f"{split}.parquet")
    return f"parquet:{folder}"


@pytest.mark.parametrize("name_of", [name_folder, name_list, name_parquet])
def test_first_rows_have_every_class(name_of: Callable[[Path], str], tmp_path: Path) -> None:
    images = load(pin(Dataset(name_of(tmp_path / "data"))))
    assert np.bincount(images.train_labels[:20], minlength=CLASSES).tolist() == [5] * CLASSES
    assert np.bincount(images.test_labels[:4], minlength=CLASSES).tolist() == [1] * CLASSES
    levels = images.train_images[:, 0, 0, 0]
    assert np.array_equal(levels // EACH, images.train_labels)
    assert not np.array_equal(np.sort(levels[images.train_labels == 0]), levels[images.train_labels == 0])


@pytest.mark.parametrize("name_of", [name_folder, name_list])
def test_rows_have_same_number_by_every_access(name_of: Callable[[Path], str], tmp_path: Path) -> None:
    data = pin(Dataset(f"{name_of(tmp_path / 'data')}#4x4#grey"))
    images = load(data)
    places = files(data)
    levels = [int(np.asarray(Image.open(path))[0, 0]) for path in places]
    assert levels == images.train_images[:, 0, 0, 0].tolist()
    opened = load_by_rows(data)
    assert np.array_equal(opened.train.pixels(np.arange(len(places))), images.train_images)
    assert np.array_equal(opened.test.labels, images.test_labels)


def test_texts_of_sorted_file_are_drawn_randomly(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(f'{{"id": "{number}", "text": "text {number:03}"}}\n' for number in range(200)))
    data = pin(Dataset(f"records:{path}"))
    texts = load_texts(data, 50)
    assert texts == load_texts(data, 100)[:50]
    assert np.mean([int(text.split()[1]) for text in texts]) == pytest.approx(100, abs=30)
