"""Tables of a run as HTML: rounded numbers with their exact values, and symbols with their explanations."""

from __future__ import annotations

import datetime
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dashboards.columns import integers, numbers, texts
from dashboards.html_table import MOST, sheet, sheets
from dashboards.numbers import duration, interval, moment, number, sample, setting
from dashboards.run import Run
from dashboards.signs import glyph
from dashboards.symbols import explain_symbols
from orchestrator.store import Store
from tests.dashboards import made, pages


class Reader(HTMLParser):
    """The cells of an HTML table by row: text and title."""

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


def test_cells_are_rounded_and_escaped() -> None:
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
    result = sheet("scores", table)
    head, first, second = Reader(str(result.html)).rows
    assert [text for text, _ in head] == ["<n>", "x", "y", "text", "true", "day"]
    assert first[:5] == [("1", None), ("0.3", repr(0.1 + 0.2)), ("nan", None), ("a<b & 'c'", None), ("True", None)]
    assert first[5] == ("2024-02-29", None)
    assert second == [("", None), ("inf", None), ("1e-20", "1e-20"), ("", None), ("False", None), ("", None)]
    assert "<b" not in re.sub("<body|<tbody", "", str(result.html))


def test_machine_columns_are_named_but_left_out() -> None:
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
    result = sheet("scores", table)
    assert result.name == "scores"
    assert result.rows == 1
    assert result.columns == 7
    assert result.shown_rows == 1
    assert result.left_out == ("list", "bytes", "large", "fixed", "record")
    assert [[text for text, _ in row] for row in Reader(str(result.html)).rows] == [["a", "b"], ["1", "2"]]


@pytest.mark.parametrize(("rows", "row_count"), [(0, 0), (MOST, MOST), (MOST + 1, MOST)])
def test_only_the_first_rows_are_shown(rows: int, row_count: int) -> None:
    result = sheet("scores", pa.table({"row": pa.array(range(rows), pa.int64())}))
    assert rows == result.rows
    assert row_count == result.shown_rows
    assert [str(row) for row in range(row_count)] == [row[0][0] for row in Reader(str(result.html)).rows[1:]]


def test_only_tables_of_one_result_are_shown(store: Store) -> None:
    single = pa.table({"a": [1]})
    another = pa.table({"a": [2]})
    run = made.run(
        store,
        "some",
        {"summary": [single], "scores": [another], "history": [single, another, single], "gone": [single]},
    )
    roots = run.journal.roots()
    for key in (roots["history"][0], *roots["gone"]):
        next(store.folder("results").glob(f"*/{key}.arrow")).unlink()
    sheets_shown, sheets_left_out = sheets(run)
    assert [(table.name, table.rows) for table in sheets_shown] == [("scores", 1)]
    assert [(table.name, table.results, table.planned) for table in sheets_left_out] == [("history", 2, 3)]
    assert sheets(Run(run.journal, run.store, cells=(run,))) == ([], [])


def chunked(*parts: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"c": pa.chunked_array([pa.array(part, kind) for part in parts], kind)})


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.int32()])
def test_missing_numbers_are_nan(kind: pa.DataType) -> None:
    table = chunked([1, None, 3], [], [None, None], [4], kind=kind)
    result = numbers(table, "c")
    assert np.float64 == result.dtype
    np.testing.assert_array_equal([1, np.nan, 3, np.nan, np.nan, 4], result)
    np.testing.assert_array_equal([np.nan, 3, np.nan], numbers(table.slice(1, 3), "c"))


def test_infinite_numbers_are_nan() -> None:
    table = chunked([np.inf, -np.inf, np.nan, 0.5], kind=pa.float64())
    np.testing.assert_array_equal([np.nan, np.nan, np.nan, 0.5], numbers(table, "c"))
    assert numbers(table, "d").shape == (0,)
    assert numbers(chunked(kind=pa.float64()), "c").shape == (0,)


def test_integers_are_exact() -> None:
    large = 2**62 + 1
    result = integers(chunked([large, None], [-3, 7], kind=pa.int64()), "c")
    assert result.tolist() == [large, 0, -3, 7]
    assert result.dtype == np.int64
    assert integers(chunked([True, False], [None, True], kind=pa.bool_()), "c").tolist() == [1, 0, 0, 1]
    assert integers(chunked([True, False, True, False], kind=pa.bool_()).slice(1, 2), "c").tolist() == [0, 1]


def test_missing_texts_are_empty() -> None:
    result = texts(chunked(["a", None], ["ε"], kind=pa.string()), "c")
    assert result.tolist() == ["a", "", "ε"]
    assert result.dtype.kind == "U"
    assert texts(chunked(kind=pa.string()), "c").dtype.kind == "U"


@pytest.mark.parametrize("value", [0.1 + 0.2, -1 / 3, 5.6e-12, 1e300, 0.0])
def test_float_is_rounded_with_exact_value(value: float) -> None:
    match = re.fullmatch(r'<data value="([^"]*)" title="\1">([^<]*)</data>', number(value))
    assert match is not None
    assert float(match[1]) == value
    assert match[2] == f"{value:.4g}"


def test_missing_values_are_named() -> None:
    assert (number(None), *(re.sub("<[^>]*>", "", number(special)) for special in (math.nan, math.inf))) == (
        "",
        "nan",
        "inf",
    )
    assert interval({"low": None, "high": 1.0}) == ""
    assert sample({"n": None, "unit": "training"}) == ""
    assert sample({"n": 12, "unit": "pair of trainings"}) == '<data value="12">12 pairs of trainings</data>'


def test_settings_times_and_durations_are_in_words() -> None:
    assert setting('{"model": "canary", "rank": 2}') == "model = canary, rank = 2"
    assert setting(None) == ""
    assert setting("not JSON") == "not JSON"
    assert setting("[1]") == "[1]"
    assert duration(0.5) == "0.5 s"
    assert duration(100) == "1 min 40 s"
    assert duration(7500) == "2 h 5 min"
    assert "2026-11-21 08:30 UTC" in moment("2026-11-21T09:30:00+01:00")
    assert moment("<b>") == "&lt;b&gt;"


def test_glyph_shows_interval_estimate_and_null() -> None:
    svg = glyph({"low": 0.0, "estimate": 5.0, "high": 10.0, "null": 0.0})
    assert [
        part for part in ('class="range" d="M6.0 8H90.0"', 'class="null" d="M6.0 1v14"', 'cx="48.0"') if part in svg
    ] == ['class="range" d="M6.0 8H90.0"', 'class="null" d="M6.0 1v14"', 'cx="48.0"']
    assert glyph({"low": None, "estimate": 5.0, "high": None, "null": None}) == ""
    assert glyph({"low": None, "estimate": None, "high": None, "null": 0.0}) == ""


def test_two_rows_share_a_scale() -> None:
    a = {"low": 0.0, "estimate": 1.0, "high": 2.0, "null": None}
    b = {"low": 2.0, "estimate": 3.0, "high": 4.0, "null": None}
    svg = glyph(a, b)
    assert 'd="M6.0 8H48.0"' in svg
    assert 'd="M48.0 24H90.0"' in svg


def test_rows_of_one_metric_share_a_scale() -> None:
    near, far = ({"low": low, "estimate": low + 1, "high": low + 2, "null": None} for low in (0.0, 8.0))
    alone = glyph(near)
    together = glyph(near, neighbours=[near, far])
    assert '<path class="range" d="M6.0 8H90.0"/>' in alone
    assert '<path class="range" d="M6.0 8H22.8"/>' in together
    assert '<path class="range" d="M73.2 8H90.0"/>' in glyph(far, neighbours=[near, far])


def test_symbols_are_explained_before_use(smoke: Run, page_path: Path) -> None:
    explanations = dict(explain_symbols(smoke))
    assert set(explanations) >= {"M_w", "twin", "canary", "null", "p", "nats"}
    assert not {"D_Q", "push", "KL"} & set(explanations)
    page_text = pages.words(page_path)
    assert page_text.index(explanations["M_w"]) < page_text.index("Evidence")
