"""Delimited text from spreadsheets is read identically as rows and as a table, or refused in one line."""

from __future__ import annotations

import re

import pytest

from tasks.worker.delimited_text import DelimitedTextError, read_delimited

COLUMNS = ("path", "label")
READ = {
    "commas": b"path,label\na b.png,0.25\nc.png,7\n",
    "byte order mark": b"\xef\xbb\xbfpath,label\na b.png,0.25\nc.png,7\n",
    "CRLF without a last end of line": b"path,label\r\na b.png,0.25\r\nc.png,7",
    "semicolons and decimal commas": b"path;label\na b.png;0,25\nc.png;7\n",
    "tabs and decimal commas": b"path\tlabel\na b.png\t0,25\nc.png\t7\n",
    "UTF-16, little-endian": b"\xff\xfe" + "path\tlabel\na b.png\t0,25\nc.png\t7\n".encode("utf-16-le"),
    "UTF-16, big-endian": b"\xfe\xff" + "path;label\na b.png;0,25\nc.png;7\n".encode("utf-16-be"),
    "Excel's line of the separator": b"sep=;\r\npath;label\r\na b.png;0,25\r\nc.png;7\r\n",
    "capitals and spaces": b"Path, LABEL \na b.png,0.25\nc.png,7\n",
    "quotes": b'"path";"label"\n"a b.png";"0,25"\n"c.png";"7"\n',
    "a column of row numbers": b",path,label\n0,a b.png,0.25\n1,c.png,7\n",
    "pandas' name of row numbers": b"Unnamed: 0;path;label\n0;a b.png;0,25\n1;c.png;7\n",
    "empty lines at either end": b"\n\npath;label\na b.png;0,25\nc.png;7\n;\n\n;\n",
}


@pytest.mark.parametrize("content", READ.values(), ids=READ)
def test_rows_and_table_agree(content: bytes) -> None:
    text = read_delimited(content, COLUMNS)
    rows = [dict(zip(text.header, cells, strict=True)) for _, cells in text.rows()]
    table = text.table()
    assert [(row["path"], row["label"]) for row in rows] == [("a b.png", "0.25"), ("c.png", "7")]
    assert table.to_pydict() == {"path": ["a b.png", "c.png"], "label": ["0.25", "7"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "f.csv is empty; the first line must name the columns"),
        (b"path;label\na;1;2\n", "has 3 values; it must have 2, as its header has (save it as CSV UTF-8"),
        (
            b"path,label\na;1\n",
            "has 1 values; it must have 2, as its header has (it seems to be separated by semicolons",
        ),
        (b"path,label\na,0,25\n", "decimal commas need semicolons between the columns"),
        (
            "path,label\nä.png,1\n".encode("latin-1"),
            "is not text in UTF-8: invalid continuation byte in line 2; save it as CSV UTF-8",
        ),
        ("path,label\n".encode("utf-16-le"), "holds zero bytes, as text in UTF-16 without a byte order mark does"),
        (b'"path,label\na,1\n', "has a first line that cannot be read; the first line must name the columns"),
    ],
)
def test_unreadable_text_is_refused(content: bytes, message: str) -> None:
    for parse in (lambda text: list(text.rows()), lambda text: text.table()):
        with pytest.raises(DelimitedTextError) as caught:
            parse(read_delimited(content, COLUMNS))
        message_of_error = caught.value.describe("f.csv")
        assert message in message_of_error
        assert "\n" not in message_of_error


def test_rows_know_their_lines() -> None:
    text = read_delimited(b'sep=,\n\npath,label\n\na,1\n"b\nb",2\nc,3\n')
    assert [line for line, _ in text.rows()] == [5, 7, 8]
    with pytest.raises(DelimitedTextError) as caught:
        list(read_delimited(b"path,label\na,1\nb\n").rows())
    assert caught.value.describe("f.csv").startswith("f.csv, line 3 has 1 values; it must have 2")


def test_names_of_a_pattern_are_found_in_capitals() -> None:
    text = read_delimited(b"Image;P0;Cat\nx;1;2\n", ("image",), re.compile(r"p\d+"))
    assert text.header == ("image", "p0", "Cat")
