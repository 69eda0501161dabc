"""Boxed images in a table: boxes, labels and parts from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.datasets import catalog
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.datasets.boxed.table import GIVEN_PARTS
from tasks.datasets.catalog import load_with_boxes, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.notes import data_notes
from tests.tasks.datasets.boxed.trees import jpeg, picture, saved

COLUMNS = "path,label,left,top,right,bottom"
ROWS = [
    ("scans/2.jpg", "ill", 1, 2, 30, 40),
    ("scans/0.jpg", "well", 0, 0, 9, 9),
    ("scans/2.jpg", "ill", 31, 2, 33, 4),
    ("scans/1.png", "ill", None, None, None, None),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(catalog, "_boxed", {})
    saved(tmp_path / "scans" / "0.jpg", jpeg(picture(0)))
    saved(tmp_path / "scans" / "1.png", jpeg(picture(1), kind="PNG"))
    saved(tmp_path / "scans" / "2.jpg", jpeg(picture(2)))
    return tmp_path


def load_table(folder: Path, text: str) -> BoxedPictures:
    (folder / "boxes.csv").write_text(text)
    return load_with_boxes(pin(Dataset(f"boxed:{folder / 'boxes.csv'}")))


def rows(values: Sequence[tuple[object, ...]]) -> str:
    return "".join(",".join("" if value is None else str(value) for value in row) + "\n" for row in values)


def test_images_and_boxes_match_the_rows(folder: Path) -> None:
    pictures = load_table(folder, f"\ufeff{COLUMNS}\n{rows(ROWS)}")
    assert pictures.ids == ("scans/0.jpg", "scans/1.png", "scans/2.jpg")
    assert pictures.names == ("ill", "well")
    assert pictures.labels.tolist() == [1, 0, 0]
    assert [boxes.tolist() for boxes in pictures.boxes] == [[[0, 0, 9, 9]], [], [[1, 2, 30, 40], [31, 2, 33, 4]]]
    assert [list(picture(number).shape[:2]) for number in range(3)] == pictures.sizes.tolist()
    np.testing.assert_array_equal(picture(1), pictures.picture(1))
    assert pictures.given_parts is None
    assert not pictures.is_validation.any()


def test_parquet_table_gives_same_data_set(folder: Path) -> None:
    names = COLUMNS.split(",")
    columns = {name: [row[index] for row in ROWS] for index, name in enumerate(names)}
    pq.write_table(pa.table(columns), folder / "boxes.parquet")
    (folder / "boxes.csv").write_text(f"{COLUMNS}\n{rows(ROWS)}")
    digests = set()
    for name in ("boxes.csv", "boxes.parquet"):
        digests.add(pin(Dataset(f"boxed:{folder / name}")).digest)
    assert len(digests) == 1


def test_table_may_assign_parts(folder: Path) -> None:
    rows_with_parts = []
    for row, part in zip(ROWS, ("trained", "public", "trained", "held out"), strict=True):
        rows_with_parts.append((*row, part))
    pictures = load_table(folder, f"{COLUMNS},part\n{rows(rows_with_parts)}")
    assert pictures.given_parts == ("public", "held out", "trained")
    plain = load_table(folder, f"{COLUMNS}\n{rows(ROWS)}")
    assert plain.given_parts is None


def test_image_is_turned_by_its_exif_orientation(folder: Path) -> None:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    saved(folder / "scans" / "0.jpg", jpeg(picture(0), exif=exif.tobytes()))
    pictures = load_table(folder, f"{COLUMNS}\n{rows(ROWS)}")
    assert list(picture(0).shape[1::-1]) == pictures.sizes[0].tolist() == list(pictures.picture(0).shape[:2])


def test_numeric_labels_are_sorted_as_numbers(folder: Path) -> None:
    pictures = load_table(folder, f"{COLUMNS}\nscans/0.jpg,10,,,,\nscans/1.png,9,1.0,1,2,2\n")
    assert pictures.names == ("9", "10")
    assert pictures.labels.tolist() == [1, 0]
    assert pictures.boxes[1].tolist() == [[1, 1, 2, 2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path", r"has the columns path; it must have path, label, left, top, right, bottom and, optionally, part"),
        ("path,label\n", r"boxes\.csv has the columns path, label; it must have path, label, left"),
        (f"{COLUMNS}\n", r"boxes\.csv has no rows"),
        (f"{COLUMNS}\nscans/0.jpg,a,1,2\n", "line 2 has 4 values; it must have 6"),
        (f"{COLUMNS}\nscans/0.jpg,,1,2,3,4\n", "line 2 has no label"),
        (f"{COLUMNS}\nscans/9.jpg,a,1,2,3,4\n", r"line 2 names scans/9\.jpg, but there is no file "),
        (f"{COLUMNS}\n{'x' * 300}.jpg,a,1,2,3,4\n", r"line 2 names x{300}\.jpg, but there is no file "),
        (f"{COLUMNS}\nscans/0.jpg,a,1,,3,4\n", "line 2: top is ''; it must be a whole number of pixels, or all four"),
        (f"{COLUMNS}\nscans/0.jpg,a,1,2.5,3,4\n", r"line 2: top is 2\.5; it must be a whole number of pixels"),
        (f"{COLUMNS}\nscans/0.jpg,a,1,2e9,3,4\n", "line 2: top is 2e9; it must be a whole number of pixels"),
        (f"{COLUMNS}\nscans/0.jpg,a,5,2,3,4\n", "line 2: the box is 5, 2, 3, 4; left must be below right, top below b"),
        (
            f"{COLUMNS}\nscans/0.jpg,a,1,2,3,4\nscans/0.jpg,b,1,2,3,4\n",
            r"line 3: label of scans/0\.jpg is 'b', but 'a'",
        ),
        (
            f"{COLUMNS}\nscans/0.jpg,a,1,2,3,4\nscans/0.jpg,a,,,,\n",
            r"line 3 names scans/0\.jpg again, after .*line 2; if an image has s",
        ),
        (
            f"{COLUMNS}\nscans/0.jpg,a,,,,\n./scans/0.jpg,a,,,,\n",
            r"as \./scans/0\.jpg and as scans/0\.jpg; use one",
        ),
        (
            f"{COLUMNS},part\nscans/0.jpg,a,1,2,3,4,test\n",
            f"line 2: part is 'test'; it must be one of {GIVEN_PARTS[0]}",
        ),
        (f"{COLUMNS}\nboxes.csv,a,1,2,3,4\n", r"boxes\.csv cannot be read as an image: cannot identify image file"),
        (f'{COLUMNS}\n"scans', r"boxes\.csv cannot be read as CSV: unexpected end of data"),
    ],
)
def test_invalid_tables_are_refused(folder: Path, text: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as error:
        load_table(folder, text)
    assert "\n" not in str(error.value)


def test_other_files_are_refused(folder: Path) -> None:
    with pytest.raises(DatasetError, match=r"0\.jpg is not a table of boxed images; it must end in \.csv or \.parquet"):
        pin(Dataset(f"boxed:{folder / 'scans' / '0.jpg'}"))
    with pytest.raises(DatasetError, match=r"no file .*none\.csv"):
        pin(Dataset(f"boxed:{folder / 'none.csv'}"))
    (folder / "bad.parquet").write_text("no")
    with pytest.raises(DatasetError, match=r"bad\.parquet cannot be read"):
        pin(Dataset(f"boxed:{folder / 'bad.parquet'}"))


def test_one_image_with_two_names_is_refused(folder: Path) -> None:
    (folder / "linked").symlink_to(folder)
    name = next(folder.rglob("*.jpg")).relative_to(folder)
    text = f"path,label,left,top,right,bottom,part\n{name},a,,,,,trained\nlinked/{name},a,,,,,held out\n"
    with pytest.raises(DatasetError, match="use one spelling"):
        load_table(folder, text)


def test_equal_files_are_copies_and_change_the_digest(folder: Path) -> None:
    apart = load_table(folder, f"{COLUMNS}\n{rows(ROWS)}")
    assert apart.first_copies.tolist() == [0, 1, 2]
    assert len(list(data_notes(pin(Dataset(f"boxed:{folder / 'boxes.csv'}")), {}))) == 0
    saved(folder / "scans" / "2.jpg", jpeg(picture(0)))
    copied = load_table(folder, f"{COLUMNS}\n{rows(ROWS)}")
    assert copied.first_copies.tolist() == [0, 1, 0]
    (note,) = data_notes(pin(Dataset(f"boxed:{folder / 'boxes.csv'}")), {})
    assert "1 groups of exact copies among the images (2 images)" in note
