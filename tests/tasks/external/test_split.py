"""The auditor's own list of which pictures are which."""

from __future__ import annotations

import csv
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from tasks.datasets.dataset import DatasetError
from tasks.external.split import SCHEMA, Split, content_of, path_beside, write

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


def test_it_lies_beside_the_folder_that_is_given_away_and_nobody_else_reads_it(tmp_path: Path) -> None:
    beside = path_beside(tmp_path / "probes")
    assert tmp_path / "probes-split.csv" == beside
    write(content_of(Split(pa.Table.from_pylist(ROWS, SCHEMA)), beside), beside)
    with beside.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [{name: str(value or "") for name, value in row.items()} for row in ROWS] == read
    assert 0o600 == stat.S_IMODE(beside.stat().st_mode)


def test_it_is_written_again_where_it_is_the_same_and_another_is_kept(tmp_path: Path) -> None:
    beside = tmp_path / "probes-split.csv"
    table = pa.Table.from_pylist(ROWS, SCHEMA)
    write(content_of(Split(table), beside), beside)
    assert beside.read_bytes() == content_of(Split(table), beside)
    with pytest.raises(DatasetError, match=r"probes-split\.csv is there and is not what would be written; name a new"):
        content_of(Split(table.slice(1)), beside)
