"""Embeddings that an owner sends: in any order and any float, and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.external.embeddings import read
from tasks.files import File

IDS = ["b.png", "a.png", "c.png"]
VALUES = [[1.0, 2.5], [3.0, -4.0], [0.0, 6.0]]


def written(folder: Path, embedding: Any, ids: list[str] = IDS, name: str = "e.parquet") -> File:
    pq.write_table(pa.table({"image": ids, "embedding": embedding, "note": ["x"] * len(ids)}), folder / name)
    return File(str(folder / name))


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()), pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float16()),
        pa.list_(pa.float32(), 2),
    ],
    ids=str,
)  # fmt: skip
def test_embeddings_are_found_by_the_ids_of_their_pictures(kind: pa.DataType, tmp_path: Path) -> None:
    values = [list(np.array(row, np.float16)) for row in VALUES] if "half" in str(kind) else VALUES
    found = read(written(tmp_path, pa.array(values, kind))).select(["a.png", "b.png"])
    assert np.float32 == found.dtype
    assert [[3.0, -4.0], [1.0, 2.5]] == found.tolist()


def test_whole_numbers_serve_too(tmp_path: Path) -> None:
    assert [[7.0, 8.0]] == read(written(tmp_path, [[1, 2], [3, 4], [7, 8]])).select(["c.png"]).tolist()


@pytest.mark.parametrize(
    ("embedding", "says"),
    [
        ([[1.0], [2.0, 3.0], [4.0]], r"the embedding of 'a.png' has 2 numbers and that of 'b.png' 1; all must have"),
        ([[], [], []], "must be lists of numbers|at least one"),
        ([[1.0], None, [2.0]], "image 'a.png' has no embedding; 1 have none"),
        ([[1.0], [2.0], [None]], "the embedding of 'c.png' has a number that is missing or not finite; 1 of 3 have"),
        ([[1.0], [float("inf")], [float("nan")]], "of 'a.png' has a number that is missing or not finite; 2 of 3"),
        ([[1.0], [1e300], [1.0]], "of 'a.png' has a number that is missing or not finite; 1 of 3"),
        ([["1"], ["2"], ["3"]], "it must be lists of numbers"),
        ([1.0, 2.0, 3.0], "it must be lists of numbers"),
    ],
)
def test_what_is_no_embedding_is_refused_in_a_line(embedding: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        read(written(tmp_path, embedding))
    assert 1 == len(str(raised.value).splitlines())
    assert str(raised.value).startswith("embeddings ")


def test_pictures_that_are_missing_are_named_and_counted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no row for 'd.png'; 2 of 3 are missing"):
        read(written(tmp_path, VALUES)).select(["a.png", "d.png", "e.png"])


def test_only_parquet_is_read(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("image,embedding\na,1\n")
    with pytest.raises(ValueError, match=r"embeddings are .*e\.csv; they must be a \.parquet file"):
        read(File(str(tmp_path / "e.csv")))
    (tmp_path / "e.parquet").write_text("image,embedding\na,1\n")
    with pytest.raises(ValueError, match=r"embeddings .*e\.parquet cannot be read: "):
        read(File(str(tmp_path / "e.parquet")))
