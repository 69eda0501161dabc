"""Two runs side by side on one page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dashboards import comparison
from dashboards.run import Run
from orchestrator.errors import SpecError
from orchestrator.spec.specification import Spec
from orchestrator.store import Store
from tests.dashboards import pages
from tests.support.browser import Browser

ROWS = """[...document.querySelectorAll("section[aria-labelledby=numbers] tbody tr")].map(row =>
  [...row.querySelectorAll("data")].map(each => each.value))"""


@pytest.fixture(scope="module")
def drawn(swept: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("comparison") / "two.html"
    comparison.draw(swept.store, (swept.cells[0].name, swept.cells[1].name), path)
    return path


def test_both_answers_and_what_differs_are_on_the_page(swept: Run, drawn: Path) -> None:
    said = pages.words(drawn)
    for cell in swept.cells:
        assert cell.verdict is not None
        assert cell.verdict.sentence in said
    assert "feature.text" in said
    assert "They were computed with the same versions" in said
    assert "are the same in both" not in said  # twins are trained to the epochs that their canaries' models kept


def test_numbers_are_those_of_the_tables_and_their_difference(swept: Run, drawn: Path, browser: Browser) -> None:
    shown = browser.open(drawn)
    assert [drawn.as_uri()] == shown.requests()
    found = shown.evaluate(ROWS)
    a, b = (cell.summary[0] for cell in swept.cells)
    assert repr(a["estimate"]) == found[0][0]
    assert repr(b["estimate"] - a["estimate"]) == found[0][-1]
    assert repr(b["estimate"]) == found[1][0]
    assert 2 * len(swept.cells[0].summary) == len(found)


def test_jobs_of_both_are_told(store: Store, tmp_path: Path) -> None:
    runs = [pages.ran(store, Spec("toys", "few", {"parts": str(parts)})) for parts in (3, 4)]
    comparison.draw(store, (runs[0].name, runs[1].name), tmp_path / "two.html")
    assert "3 jobs are the same in both" in pages.words(tmp_path / "two.html")


def test_a_row_that_only_one_has_is_told(store: Store, smoke: Run, tmp_path: Path) -> None:
    few = pages.ran(smoke.store, Spec("toys", "few"))
    comparison.draw(smoke.store, (few.name, smoke.name), tmp_path / "two.html")
    assert "has no such row" in pages.words(tmp_path / "two.html")


def test_runs_without_results_lie_side_by_side_too(store: Store, tmp_path: Path) -> None:
    stopped = replace(pages.HERE, stop_after=1e-6)
    runs = [pages.ran(store, Spec("toys", "few", {"parts": str(parts)}), stopped) for parts in (3, 4)]
    comparison.draw(store, (runs[0].name, runs[1].name), tmp_path / "two.html")
    assert "No answer" in pages.words(tmp_path / "two.html")


def test_a_sweep_is_refused_by_name(swept: Run, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is a sweep"):
        comparison.draw(swept.store, (swept.name, swept.cells[0].name), tmp_path / "two.html")
    assert [] == list(tmp_path.iterdir())
