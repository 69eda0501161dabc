"""The auditor's own lists of which pictures are which."""

from __future__ import annotations

import csv
import hashlib
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from tasks.datasets.dataset import DatasetError
from tasks.external.split import SCHEMA, Split, key_of, write

ROWS = [
    {
        "set": "query",
        "data": "folder:a,b",
        "row": 3,
        "file": "a,b/3.png",
        "image": "p/000001.png",
        "again": None,
    },
    {"set": "control", "data": "folder:a,b", "row": 4, "file": None, "image": "p/000000.png", "again": "x.png"},
]
KEY = key_of([("p/000001.png", "query"), ("p/000000.png", "control")])


def test_they_lie_beside_the_folder_that_is_given_away_and_nobody_else_reads_them(tmp_path: Path) -> None:
    held = Split(KEY, pa.Table.from_pylist(ROWS, SCHEMA)).files_beside(tmp_path / "probes")
    key, split = tmp_path / "probes-key.csv", tmp_path / "probes-split.csv"
    assert [key, split] == list(held)
    write(held)
    with split.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [{name: str(value or "") for name, value in row.items()} for row in ROWS] == read
    assert '"image","set"\n"p/000000.png","control"\n"p/000001.png","query"\n' == key.read_text()
    assert [0o600, 0o600] == [stat.S_IMODE(path.stat().st_mode) for path in held]


def test_the_commitment_is_the_sha256_of_the_keys_file_whatever_order_it_was_made_in(tmp_path: Path) -> None:
    split = Split(KEY)
    write(split.files_beside(tmp_path / "probes"))
    assert hashlib.sha256((tmp_path / "probes-key.csv").read_bytes()).hexdigest() == split.commitment
    assert [tmp_path / "probes-key.csv"] == list(tmp_path.iterdir())
    other = key_of([("p/000001.png", "control"), ("p/000000.png", "query")])
    assert split.commitment != Split(other).commitment


def test_they_are_written_again_where_they_are_the_same_and_others_are_kept(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS, SCHEMA)
    write(Split(KEY, table).files_beside(tmp_path / "probes"))
    write(Split(KEY, table).files_beside(tmp_path / "probes"))
    with pytest.raises(DatasetError, match=r"probes-split\.csv is there and is not what would be written; name a new"):
        Split(KEY, table.slice(1)).files_beside(tmp_path / "probes")
    with pytest.raises(DatasetError, match=r"probes-key\.csv is there and is not what would be written; name a new"):
        Split(KEY.slice(1)).files_beside(tmp_path / "probes")
