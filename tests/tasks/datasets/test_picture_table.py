"""A list of images is a data set: paths, labels and splits come from its rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images
from tasks.datasets.notes import data_notes
from tests.tasks.datasets import scans
from tests.tasks.datasets.scans import pixels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(6):
        scans.saved(tmp_path / "scans" / f"{number}.png", pixels(0, number))
    return tmp_path


def load_list(folder: Path, text: str) -> Images:
    path = folder / "list.csv"
    path.write_text(text)
    return load(pin(Dataset(f"list:{path}")))


def test_paths_labels_and_splits_match_the_rows(folder: Path) -> None:
    rows = [("4", "ill", "train"), ("0", "well", "train"), ("2", "ill", "test"), ("3", "well", "test")]
    lines = "".join(f"{split},scans/{number}.png,{label},x\n" for number, label, split in rows)
    images = load_list(folder, "\ufeffsplit,path,label,more\n" + lines)
    assert images.names == ("ill", "well")
    assert images.train_labels.tolist() == [0, 1]
    assert images.test_labels.tolist() == [0, 1]
    assert [pixels(0, 4).tolist(), pixels(0, 0).tolist()] == images.train_images[..., 0].tolist()
    table = pa.table({name: [row[column] for row in rows] for column, name in ((1, "label"), (2, "split"))})
    table = table.append_column("path", pa.array([str(folder / f"scans/{row[0]}.png") for row in rows]))
    pq.write_table(table, folder / "list.parquet")
    names = [Dataset(f"list:{folder / name}") for name in ("list.csv", "list.parquet")]
    assert pin(names[0]).digest == pin(names[1]).digest


def test_one_row_in_five_is_test(folder: Path) -> None:
    lines = "".join(f"scans/{number}.png,{10 if number % 2 else 9}\n" for number in range(6))
    images = load_list(folder, "path,label\n" + lines)
    assert images.test_labels.tolist() == [0, 1]
    assert images.train_labels.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("words", "unread"),
    [
        (("Train", "VAL"), 0),
        (("training", "validation"), 0),
        (("train", "test", "val"), 2),
    ],
)
def test_splits_have_several_names(folder: Path, words: tuple[str, ...], unread: int) -> None:
    rows = zip(range(6), ("a", "b") * 3, [word for word in words for _ in (0, 1)], strict=False)
    lines = "".join(f"scans/{number}.png,{label},{word}\n" for number, label, word in rows)
    images = load_list(folder, "path,label,split\n" + lines)
    assert len(images.train_images) == 2
    assert len(images.test_images) == 2
    notes = data_notes(pin(Dataset(f"list:{folder / 'list.csv'}")), {})
    expected = f"{unread} images of its validation split are not read, since it has a test split"
    assert [expected in note for note in notes] == [True] * bool(unread)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "list.csv is empty; the first line must name the columns"),
        ("file,label\n", "has the columns file, label; it must have path, label and"),
        ("path,label\n", "list.csv has no rows"),
        ("path,label\nscans/0.png\n", "list.csv, line 2 has 1 values; it must have 2"),
        ("path,label\nscans/0.png,\n", "list.csv, line 2 has no label"),
        ("path,label\nscans/9.png,a\n", "list.csv, line 2 names scans/9.png, but there is no file "),
        ("path,label\nscans/0.png,a\n./scans/0.png,a\n", "line 3 repeats ./scans/0.png from "),
        ("path,label,split\nscans/0.png,a,other\n", "line 2: split is 'other'; it must be train or test"),
        ("path,label,split\nscans/0.png,a,train\n", "class 'a' has no image in the test split, and 1 in total"),
        ("path,label\nscans/0.png,a\nlist.csv,a\n", "list.csv cannot be read as an image: cannot identify image file"),
        ('path,label\n"scans/0.png,a\n', "list.csv cannot be read as CSV: unexpected end of data"),
    ],
)
def test_invalid_list_names_the_row(folder: Path, text: str, message: str) -> None:
    with pytest.raises(DatasetError) as caught:
        load_list(folder, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_labels_must_be_text_or_numbers(folder: Path) -> None:
    path = folder / "list.parquet"
    pq.write_table(pa.table({"path": ["scans/0.png"], "label": [float("inf")]}), path)
    with pytest.raises(DatasetError, match=r"row 0: label is inf; it must be text or a number"):
        pin(Dataset(f"list:{path}"))
    path.write_text("no table")
    with pytest.raises(DatasetError, match=r"list\.parquet cannot be read: "):
        pin(Dataset(f"list:{path}"))
    with pytest.raises(DatasetError, match=r"0\.png is not a list of images; it must end in \.csv or \.parquet"):
        pin(Dataset(f"list:{folder / 'scans' / '0.png'}"))
    with pytest.raises(DatasetError, match=f"no file {folder}/gone.csv"):
        pin(Dataset(f"list:{folder}/gone.csv"))
