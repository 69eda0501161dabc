"""Tables from a model's owner are read with their printed precision or refused with a one-line error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pyarrow.parquet as pq
import pytest

from tasks.external.outputs import read_outputs
from tasks.external.sent_table import Sent, decimals, has_exponents, is_list, is_text, read_embeddings, read_sent
from tasks.worker import files
from tasks.worker.files import File


def csv(folder: Path, text: str) -> Sent:
    (folder / "said.csv").write_text(text)
    return read_sent(files.pin(File(str(folder / "said.csv"))))


def parquet(folder: Path, **columns: list[object]) -> Sent:
    pyarrow.parquet.write_table(pa.table(columns), folder / "said.parquet")
    return read_sent(files.pin(File(str(folder / "said.parquet"))))


def test_table_keeps_ids_and_printed_numbers(tmp_path: Path) -> None:
    table = csv(tmp_path, "image,a,b\n007, 0.50 ,1e-7\n8,nan,-2\n")
    assert table.ids == ("007", "8")
    assert table.columns == ["a", "b"]
    assert table.numbers("a").tolist() == pytest.approx([0.5, np.nan], nan_ok=True)
    assert table.numbers("b").tolist() == [1e-7, -2.0]
    assert decimals(table.column("a")).tolist() == [2, 0]
    assert not has_exponents(table.column("a"))
    assert has_exponents(table.column("b"))
    assert table.rows(["8", "007"]).tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"said\.csv has no row for '9'; 2 of 3 are missing"):
        table.rows(["9", "8", "10"])


@pytest.mark.parametrize(
    "content",
    [
        b"image;a;b\n007;0,50;1e-7\n8;0,125;-2\n",
        b"\xef\xbb\xbfimage\ta\tb\r\n007\t0,50\t1e-7\r\n8\t0,125\t-2\r\n",
        b"\xff\xfe" + "Image;a;b\n007;0,50;1e-7\n8;0,125;-2\n;;\n".encode("utf-16-le"),
        b",image,a,b\n0,007,0.50,1e-7\n1,8,0.125,-2\n",
    ],
    ids=["semicolons", "tabs", "UTF-16", "row numbers"],
)
def test_spreadsheet_tables_are_read(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "said.csv").write_bytes(content)
    table = read_sent(files.pin(File(str(tmp_path / "said.csv"))))
    assert table.ids == ("007", "8")
    assert table.columns == ["a", "b"]
    assert table.numbers("a").tolist() == [0.5, 0.125]
    assert decimals(table.column("a")).tolist() == [2, 3]
    assert table.numbers("b").tolist() == [1e-7, -2.0]


@pytest.mark.parametrize(
    "columns",
    [
        {"Image": ["x", "y"], "P0": [0.25, 0.5], "p1": [0.75, 0.5], "__index_level_0__": [7, 9]},
        {" IMAGE ": ["x", "y"], "p0": [0.25, 0.5], "P1": [0.75, 0.5], "Unnamed: 0": [0, 1]},
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_pandas_headers_are_equal_by_both_routes(columns: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"said.{suffix}"
    if suffix == "csv":
        rows = zip(*columns.values(), strict=True)
        path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    else:
        pq.write_table(pa.table(columns), path)
    file = files.pin(File(str(path)))
    assert read_sent(file).columns == ["p0", "p1"]
    for names in ((), ("P0", "p1")):
        assert read_outputs(file, names).values.tolist() == [[0.25, 0.75], [0.5, 0.5]]


def test_parquet_gives_the_same_table(tmp_path: Path) -> None:
    table = parquet(tmp_path, image=["x", "y"], a=[0.25, 3.0], b=[1, 2])
    assert table.numbers("a").tolist() == [0.25, 3.0]
    assert table.numbers("b").tolist() == [1.0, 2.0]
    assert not is_text(table.column("a"))
    assert not has_exponents(table.column("a"))


@pytest.mark.parametrize(
    ("printed", "places"),
    [
        ("0.50", 2),
        ("1.2e-05", 6),
        ("12", 0),
        ("-.125", 3),
        ("5.", 0),
        ("1.25E+1", 1),
        ("3e2", 0),
        (" 0.1 ", 1),
        ("no", 0),
    ],
)
def test_decimal_places_are_counted_as_printed(printed: str, places: int) -> None:
    assert [places] == decimals(pa.chunked_array([[printed]])).tolist()


def test_decimals_of_floats_and_lists_are_counted() -> None:
    assert decimals(pa.chunked_array([[0.1, 2.0, 1.2e-05]])).tolist() == [1, 0, 6]
    assert decimals(pa.chunked_array([[[0.5, 0.25], [0.125]]])).tolist() == [1, 2, 3]
    kinds = [pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 2), pa.float64()]
    assert [is_list(kind) for kind in kinds] == [True, True, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,a\nx,1\n", "has no column image; found id, a"),
        ("image,a,a\nx,1,2\n", "has two columns 'a'"),
        ("image,a\n", "has no rows"),
        ("image,a\nx,1\n,2\n,3\n", "has no image in row 1; 2 rows have none"),
        ("image,a\nx,1\ny,2\nx,3\n", "has more than one row for 'x'; 1 rows repeat an id"),
        ("image,a\nx,1,2\n", "has a row that has 3 values; it must have 2, as its header has"),
    ],
)
def test_invalid_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        csv(tmp_path, text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("", "image 'y' has no value in column a; 1 have none"),
        ("low", "low of image 'y' in column a is not a number; 1 are not"),
    ],
)
def test_invalid_numbers_name_their_image(tmp_path: Path, cell: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        csv(tmp_path, f"image,a\nx,1\ny,{cell}\n").numbers("a")


def test_numeric_ids_and_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has int64 in its column image; expected text"):
        parquet(tmp_path, image=[1, 2])
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"broken\.parquet cannot be read: "):
        read_sent(files.pin(File(str(tmp_path / "broken.parquet"))))
    (tmp_path / "said.txt").write_text("image\nx\n")
    with pytest.raises(ValueError, match=r"said.txt; expected a .csv or a .parquet file"):
        read_sent(files.pin(File(str(tmp_path / "said.txt"))))


IDS = ["b.png", "a.png", "c.png"]
VALUES = [[1.0, 2.5], [3.0, -4.0], [0.0, 6.0]]


def write_embeddings(folder: Path, embedding: Any, ids: list[str] = IDS, name: str = "e.parquet") -> File:
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
def test_embeddings_are_selected_by_image_id(kind: pa.DataType, tmp_path: Path) -> None:
    if "half" in str(kind):
        values = [list(np.array(row, np.float16)) for row in VALUES]
    else:
        values = VALUES
    embeddings = read_embeddings(write_embeddings(tmp_path, pa.array(values, kind))).select(["a.png", "b.png"])
    assert np.float32 == embeddings.dtype
    assert embeddings.tolist() == [[3.0, -4.0], [1.0, 2.5]]


def test_integer_embeddings_are_accepted(tmp_path: Path) -> None:
    assert read_embeddings(write_embeddings(tmp_path, [[1, 2], [3, 4], [7, 8]])).select(["c.png"]).tolist() == [
        [7.0, 8.0]
    ]


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        (
            [[1.0], [2.0, 3.0], [4.0]],
            r"the embedding of 'a.png' has 2 numbers, but that of 'b.png' has 1; expected the same",
        ),
        ([[], [], []], "expected lists of numbers|at least one"),
        ([[1.0], None, [2.0]], "image 'a.png' has no embedding; 1 have none"),
        ([[1.0], [2.0], [None]], "the embedding of 'c.png' has a number that is missing or not finite, as have 1 of 3"),
        (
            [[1.0], [float("inf")], [float("nan")]],
            "of 'a.png' has a number that is missing or not finite, as have 2 of 3",
        ),
        ([[1.0], [1e300], [1.0]], "of 'a.png' has a number that is missing or not finite, as have 1 of 3"),
        ([["1"], ["2"], ["3"]], "expected lists of numbers"),
        ([1.0, 2.0, 3.0], "expected lists of numbers"),
    ],
)
def test_invalid_embeddings_are_refused(embedding: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        read_embeddings(write_embeddings(tmp_path, embedding))
    assert len(str(raised.value).splitlines()) == 1
    assert str(raised.value).startswith("embeddings ")


def test_missing_images_are_named_and_counted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no row for 'd.png'; 2 of 3 are missing"):
        read_embeddings(write_embeddings(tmp_path, VALUES)).select(["a.png", "d.png", "e.png"])


def test_only_parquet_embeddings_are_read(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("image,embedding\na,1\n")
    with pytest.raises(ValueError, match=r"embeddings are .*e\.csv; expected a \.parquet file"):
        read_embeddings(File(str(tmp_path / "e.csv")))
    (tmp_path / "e.parquet").write_text("image,embedding\na,1\n")
    with pytest.raises(ValueError, match=r"embeddings .*e\.parquet cannot be read: "):
        read_embeddings(File(str(tmp_path / "e.parquet")))
