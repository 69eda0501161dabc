"""A run's tables as HTML: the first rows, every digit of a number, and nothing that only programs read."""

from __future__ import annotations

import datetime
import math
import re
from html.parser import HTMLParser

import pyarrow as pa
import pytest

from dashboards.html_table import MOST, sheet, sheets
from dashboards.run import Run
from orchestrator.store import Store
from tests.dashboards import made


class Reader(HTMLParser):
    """The cells of a table as a browser has them: text and title, row by row."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[tuple[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append(("", dict(attrs).get("title")))

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            text, title = self.rows[-1][-1]
            self.rows[-1][-1] = text + data.rstrip("\n"), title


def test_cells_are_short_and_whole_beside_it_and_text_is_escaped() -> None:
    table = pa.table(
        {
            "<n>": [1, None],
            "x": [0.1 + 0.2, math.inf],
            "y": [math.nan, 1e-20],
            "text": ["a<b & 'c'", None],
            "true": [True, False],
            "day": [datetime.date(2024, 2, 29), None],
        }
    )
    found = sheet("scores", table)
    head, first, second = Reader(str(found.html)).rows
    assert ["<n>", "x", "y", "text", "true", "day"] == [text for text, _ in head]
    assert [("1", None), ("0.3", repr(0.1 + 0.2)), ("nan", None), ("a<b & 'c'", None), ("True", None)] == first[:5]
    assert ("2024-02-29", None) == first[5]
    assert [("", None), ("inf", None), ("1e-20", "1e-20"), ("", None), ("False", None), ("", None)] == second
    assert "<b" not in re.sub("<body|<tbody", "", str(found.html))


def test_columns_for_programs_are_named_and_left_out() -> None:
    table = pa.table(
        {
            "a": [1],
            "list": [[1]],
            "bytes": [b"x"],
            "large": pa.array([b"x"], pa.large_binary()),
            "fixed": pa.array([b"x"], pa.binary(1)),
            "record": [{"z": 1}],
            "b": ["2"],
        }
    )
    found = sheet("scores", table)
    assert ("scores", 1, 7, 1) == (found.name, found.rows, found.columns, found.shown)
    assert ("list", "bytes", "large", "fixed", "record") == found.left_out
    assert [["a", "b"], ["1", "2"]] == [[text for text, _ in row] for row in Reader(str(found.html)).rows]


@pytest.mark.parametrize(("rows", "shown"), [(0, 0), (MOST, MOST), (MOST + 1, MOST)])
def test_only_the_first_rows_are_shown(rows: int, shown: int) -> None:
    found = sheet("scores", pa.table({"row": pa.array(range(rows), pa.int64())}))
    assert (rows, shown) == (found.rows, found.shown)
    assert [str(row) for row in range(shown)] == [row[0][0] for row in Reader(str(found.html)).rows[1:]]


def test_tables_of_one_result_are_shown_and_those_of_several_are_counted(store: Store) -> None:
    one, other = pa.table({"a": [1]}), pa.table({"a": [2]})
    run = made.run(store, "some", {"summary": [one], "scores": [other], "history": [one, other, one], "gone": [one]})
    roots = run.journal.roots()
    for key in (roots["history"][0], *roots["gone"]):
        next(store.folder("results").glob(f"*/{key}.arrow")).unlink()
    shown, others = sheets(run)
    assert [("scores", 1)] == [(each.name, each.rows) for each in shown]
    assert [("history", 2, 3)] == [(each.name, each.results, each.planned) for each in others]
    assert ([], []) == sheets(Run(run.journal, run.store, cells=(run,)))
