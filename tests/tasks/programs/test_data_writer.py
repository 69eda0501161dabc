"""Records that Engram writes for a training program can be read back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.images import Images, Pixels
from tasks.programs.config import CommandTraining, DataFormat
from tasks.programs.data_writer import Records, check_writable, image_writer, write_records, write_texts

ROWS = np.array([3, 1, 40, 7, 8, 9, 11, 12, 13, 14, 20, 25, 30, 31, 32, 33, 34, 35, 36, 37])


def digits() -> Images:
    return load(pin(Dataset("digits")))


def colours() -> Records:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 5, 4, 3), dtype=np.uint8)
    return Records(np.arange(12), pixels, np.arange(12) % 2, ("zebra", "ant"))


def table() -> Records:
    numbers: Pixels = np.random.default_rng(0).normal(size=(10, 1, 1, 2)).astype(np.float32)  # type: ignore[assignment]
    return Records(np.arange(10), numbers, np.arange(10) % 2, (), ("age", "weight"))


def program(data_format: DataFormat = "auto", command: str = "train {data} {out}") -> CommandTraining:
    return CommandTraining(command=command, data_format=data_format, returns="model")


def read_set(name: str) -> set[tuple[bytes, str]]:
    """The images of both splits with the names of their classes."""
    images = load(pin(Dataset(name)))
    records = set()
    for pixels, labels in ((images.train_images, images.train_labels), (images.test_images, images.test_labels)):
        for picture, label in zip(pixels, labels.tolist(), strict=True):
            records.add((picture.tobytes(), images.names[label]))
    return records


def expected_set(records: Records, names: tuple[str, ...]) -> set[tuple[bytes, str]]:
    assert records.labels is not None
    pairs = zip(records.pixels, records.labels.tolist(), strict=True)
    return {(picture.tobytes(), names[label]) for picture, label in pairs}


def test_arrays_are_read_back_in_order(tmp_path: Path) -> None:
    images = digits()
    records = Records.of_rows(images, ROWS)
    asked = Records(np.arange(4), images.test_images[:4], None)
    image_writer(program(), records, asked)(tmp_path)
    train = np.load(tmp_path / "train.npz")
    assert np.array_equal(train["rows"], ROWS)
    assert np.array_equal(train["images"], images.train_images[ROWS])
    assert np.array_equal(train["labels"], images.train_labels[ROWS])
    ask = np.load(tmp_path / "ask.npz")
    assert sorted(ask) == ["images", "rows"]
    assert np.array_equal(ask["images"], images.test_images[:4])


def test_own_readers_read_folders_and_parquet(tmp_path: Path) -> None:
    records = colours()
    for data_format in ("folder", "parquet"):
        folder = tmp_path / data_format
        folder.mkdir()
        image_writer(program(data_format), records, records)(folder)
    # Names whose alphabetical order differs from that of the numbers do not name folders.
    assert read_set(f"folder:{tmp_path / 'folder' / 'train'}") == expected_set(records, ("0", "1"))
    (tmp_path / "parquet" / "ask.parquet").rename(tmp_path / "parquet" / "test.parquet")
    assert read_set(f"parquet:{tmp_path / 'parquet'}") == expected_set(records, ("0", "1"))
    write_records(tmp_path, "named", Records(records.rows, records.pixels, records.labels, ("ant", "bee")), "folder")
    assert read_set(f"folder:{tmp_path / 'named'}") == expected_set(records, ("ant", "bee"))


def test_own_reader_reads_table(tmp_path: Path) -> None:
    records = table()
    write_records(tmp_path, "train", records, "parquet")
    read = load(pin(Dataset(f"table:{tmp_path / 'train.parquet'}#label=label#raw")))
    assert read.features == ("age", "weight")
    everything = np.concatenate([read.train_images, read.test_images]).reshape(-1, 2)
    assert {row.tobytes() for row in everything} == {row.tobytes() for row in records.pixels.reshape(-1, 2)}


def test_records_without_labels_have_no_class_folder(tmp_path: Path) -> None:
    records = Records(np.arange(2), colours().pixels[:2], None)
    write_records(tmp_path, "ask", records, "folder")
    assert sorted(path.name for path in (tmp_path / "ask").iterdir()) == ["0.png", "1.png"]
    write_records(tmp_path, "ask", records, "parquet")
    assert pq.read_table(tmp_path / "ask.parquet").column_names == ["row", "image"]


def test_texts_are_lines_with_their_rows(tmp_path: Path) -> None:
    write_texts(tmp_path, "train", [4, 0], ["line\nbreak é", "b"])
    lines = (tmp_path / "train.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"row": 4, "text": "line\nbreak é"}, {"row": 0, "text": "b"}]


@pytest.mark.parametrize("data_format", ["npz", "folder", "parquet"])
def test_equal_records_give_equal_bytes(tmp_path: Path, data_format: DataFormat) -> None:
    contents = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        image_writer(program(data_format), colours(), colours())(folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        contents.append([(path.relative_to(folder), path.read_bytes()) for path in files])
    assert contents[0] == contents[1]


def test_programs_that_cannot_receive_records_are_refused() -> None:
    with pytest.raises(ValueError, match=r"command has no \{data\}: this audit changes records"):
        check_writable(program(command="train {rows}"), "images")
    with pytest.raises(ValueError, match=r"data_format is jsonl; it must be npz or folder or parquet for im"):
        check_writable(program("jsonl"), "images")
    with pytest.raises(ValueError, match=r"data_format is npz; it must be jsonl for texts"):
        check_writable(program("npz"), "texts")
    with pytest.raises(ValueError, match="the table has a feature named label"):
        check_writable(program("parquet"), "tables", ("age", "label"))
