"""Two runs side by side on one page, and a paper's table over the cells of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dashboards import comparison, estimates
from dashboards.run import Run
from dashboards.sweep import cell_label, repetition
from orchestrator.errors import SpecError
from orchestrator.spec.specification import Spec
from orchestrator.store import Store
from tests.dashboards import made, pages
from tests.support.browser import Browser

ROWS = """[...document.querySelectorAll("section[aria-labelledby=numbers] tbody tr")].map(row =>
  [...row.querySelectorAll("data")].map(each => each.value))"""


@pytest.fixture(scope="module")
def comparison_page(swept: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("comparison") / "two.html"
    comparison.draw(swept.store, (swept.cells[0].name, swept.cells[1].name), path)
    return path


def test_page_has_both_answers_and_their_differences(swept: Run, comparison_page: Path) -> None:
    page_text = pages.words(comparison_page)
    for cell in swept.cells:
        assert cell.verdict is not None
        assert cell.verdict.sentence in page_text
    assert "feature.text" in page_text
    assert "Both runs used the same versions" in page_text
    assert "The runs share" not in page_text  # twins are trained to the epochs that their canaries' models kept


def test_numbers_equal_the_tables_and_their_difference(swept: Run, comparison_page: Path, browser: Browser) -> None:
    opened_page = browser.open(comparison_page)
    assert [comparison_page.as_uri()] == opened_page.requests()
    numbers = opened_page.evaluate(ROWS)
    a, b = (cell.summary[0] for cell in swept.cells)
    assert repr(a["estimate"]) == numbers[0][0]
    assert repr(b["estimate"] - a["estimate"]) == numbers[0][-1]
    assert repr(b["estimate"]) == numbers[1][0]
    assert 2 * len(swept.cells[0].summary) == len(numbers)


def test_shared_jobs_are_counted(store: Store, tmp_path: Path) -> None:
    runs = []
    for parts in (3, 4):
        runs.append(pages.ran(store, Spec("toys", "few", {"parts": str(parts)})))
    comparison.draw(store, (runs[0].name, runs[1].name), tmp_path / "two.html")
    assert "The runs share 3 jobs" in pages.words(tmp_path / "two.html")


def test_row_of_one_run_only_is_marked(store: Store, tmp_path: Path) -> None:
    (table,) = made.tables(3)["summary"]
    runs = []
    for name, rows in (("unique_feature-1", table), ("unique_feature-2", table.slice(1))):
        runs.append(made.run(store, name, {"summary": [rows]}))
    comparison.draw(store, (runs[0].name, runs[1].name), tmp_path / "two.html")
    assert "no such row" in pages.words(tmp_path / "two.html")


def test_runs_without_results_can_be_compared(store: Store, tmp_path: Path) -> None:
    stopped = replace(pages.HERE, stop_after=1e-6)
    runs = []
    for parts in (3, 4):
        runs.append(pages.ran(store, Spec("toys", "few", {"parts": str(parts)}), stopped))
    comparison.draw(store, (runs[0].name, runs[1].name), tmp_path / "two.html")
    assert "There is no answer yet" in pages.words(tmp_path / "two.html")


def test_sweep_is_refused_by_name(swept: Run, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is a sweep"):
        comparison.draw(swept.store, (swept.name, swept.cells[0].name), tmp_path / "two.html")
    assert list(tmp_path.iterdir()) == []


def row(estimate: float | None, published: float | None, setting: str = "{}") -> dict[str, Any]:
    numbers = {"estimate": estimate, "low": None, "high": None, "n": 3, "unit": "canary", "null": None, "p_value": None}
    return {"metric": "M", "setting": setting, "published": published} | numbers


def sweep(*cells: tuple[Mapping[str, Any], Sequence[dict[str, Any]]]) -> Run:
    sweep_cells = []
    for setting, rows in cells:
        sweep_cells.append(SimpleNamespace(about={"setting": setting, "config": {}}, summary=rows))
    return cast("Run", SimpleNamespace(cells=sweep_cells))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"dropout": True, "crop": False, "network": "mlp1"}, "dropout, mlp1"),
        ({"dropout": False, "crop": False, "network": "mlp1"}, "mlp1"),
        ({"dropout": False, "crop": False}, "plain"),
        ({"dropout": True, "crop": True, "network": None}, "dropout, crop, none"),
        ({"dropout": 0.5, "data": "mnist@aaaa"}, "0.5, mnist"),
    ],
)
def test_cell_is_named_by_its_settings(setting: dict[str, Any], expected: str) -> None:
    assert expected == cell_label(setting, list(setting))


def test_published_figure_has_measured_rows_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figure_arguments: list[Any] = []
    monkeypatch.setattr(estimates, "forests", lambda *arguments: figure_arguments.append(arguments) or ["figure"])
    cells = sweep(
        ({"dropout": True}, [row(0.5, 0.25, '{"rank": 1}'), row(0.5, None), row(None, 0.1), row(math.nan, 0.1)]),
        ({"dropout": False}, [row(0.75, 0.5), row(0.5, math.inf)]),
    )
    assert list(repetition(cells)) == ["figure"]
    ((rows, name, title),) = figure_arguments
    assert name == "published"
    assert title == estimates.REPEATED
    assert [
        (measured_row["estimate"], measured_row["published"], measured_row["setting"]) for measured_row in rows
    ] == [
        (0.5, 0.25, '{"cell": "dropout", "rank": 1}'),
        (0.75, 0.5, '{"cell": "plain"}'),
    ]


def test_unpublished_numbers_have_no_figure() -> None:
    assert list(repetition(sweep(({"a": 1}, [row(0.5, None)]), ({"a": 2}, [])))) == []
