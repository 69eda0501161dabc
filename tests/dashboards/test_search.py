"""The page of a search: its answer, its front and every trial; its seal covers them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dashboards import pareto_front
from dashboards.figures import figures
from dashboards.pareto_front import LOOKS
from dashboards.run import Run, open_run
from orchestrator.inspection.search_results import SearchResults
from orchestrator.store import open_store
from tests.dashboards import pages
from tests.dashboards.test_page import STRUCTURE
from tests.orchestrator.inspection.test_search_results import journal, rewritten, rows
from tests.support.browser import Browser, Page
from tests.support.searches import FinishedSearch
from tests.support.shell import Here

TABLES = """[...document.querySelectorAll("section[aria-labelledby=trials] tbody tr")].map(row => [
  row.cells[0].textContent, [...row.querySelectorAll("data")].map(each => each.value)])"""
NUMBERS = [f"{name}{end}" for name in ("memorization", "utility") for end in ("", "_low", "_high")] + ["memorization_n"]


def run_of(search_run: FinishedSearch) -> Run:
    return open_run(open_store(str(search_run.store)), search_run.name)


@pytest.fixture(scope="module")
def search_run(searched: FinishedSearch, tmp_path_factory: pytest.TempPathFactory) -> FinishedSearch:
    return searched.copy_to(tmp_path_factory.mktemp("drawn"))


@pytest.fixture(scope="module")
def search_page(search_run: FinishedSearch) -> Path:
    return pages.draw(run_of(search_run))


@pytest.fixture(scope="module")
def opened(browser: Browser, search_page: Path) -> Page:
    return browser.open(search_page, width=390)


def test_page_has_certificate_front_trials_and_next_command(search_run: FinishedSearch, search_page: Path) -> None:
    page_text = pages.words(search_page)
    sentence = search_run.printed["recommendation"]["sentence"]
    places = [
        "Question Which training memorises least and is still useful enough?",
        "Answer recommended",
        sentence,
        "0.320: estimate",
        "What this means Recommended:",
        "How reliable is this?",
        "at most 2.5 of 100 searches",
        "What this does not show",
        "Next steps Train with rate=0.006, wide=false",
        "What was examined 4 trainings with different rate and wide",
        "Audited items and results",
        "How much utility does less memorisation cost?",
        "Audited again with fresh seeds",
        "Trials of the search",
        "Varied settings rate 0.006,0.01 wide false,true",
        f"engram search --resume {search_run.name} --trials 8",
    ]
    positions = [page_text.find(expected) for expected in places]
    assert -1 not in positions, places[positions.index(-1)]
    assert sorted(positions) == positions


def test_trial_numbers_equal_tables(search_run: FinishedSearch, opened: Page) -> None:
    table = rows(search_run)
    shown_rows = opened.evaluate(TABLES)
    assert len(shown_rows) == len(table) == 7
    fresh_rows = [row for row in table if row["part"] == "fresh"]
    for (name, values), row in zip(
        shown_rows, [*fresh_rows, *(row for row in table if row not in fresh_rows)], strict=True
    ):
        assert [repr(row[number]) for number in NUMBERS] == values
        assert name.startswith("start" if row["trial"] == 0 else f"{row['trial']}")
        assert row["front"] == ("front" in name)


def test_search_page_is_accessible_and_fits_a_phone(opened: Page) -> None:
    structure = opened.evaluate(STRUCTURE)
    assert structure["headings"][0] == 1
    assert structure["headings"].count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(structure["headings"]))
    assert sorted(set(structure["ids"])) == sorted(structure["ids"])
    assert tuple(structure[name] for name in ("unnamed", "tables", "headers", "scripts", "targets")) == ([], 0, 0, 0, 0)
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    wide = opened.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] == wide[1] <= 390
    assert opened.complaints() == []
    assert len(opened.requests()) == 1


def test_search_page_links_to_drawn_runs(searched: FinishedSearch, tmp_path: Path) -> None:
    search_run = searched.copy_to(tmp_path)
    first = rows(search_run)[0]["run"]
    pages.draw(open_run(open_store(str(search_run.store)), first))
    page = pages.draw(run_of(search_run))
    links = re.findall(r'href="(\.\./[^"]+)"', page.read_text())
    assert set(links) == {f"../{first}/report.html"}
    assert all((page.parent / link).is_file() for link in links)


def test_trial_page_links_back_to_its_search(searched: FinishedSearch, browser: Browser, tmp_path: Path) -> None:
    search_run = searched.copy_to(tmp_path)
    store = open_store(str(search_run.store))
    first = rows(search_run)[0]["run"]
    page_alone = pages.draw(open_run(store, first))
    assert "../" not in page_alone.read_text()  # there is no page to lead to
    assert f"search the start and trial 2 of {search_run.name} created" in pages.words(page_alone)
    search = pages.draw(run_of(search_run))
    page = pages.draw(open_run(store, first))
    assert f"This run is the start and trial 2 of {search_run.name}. engram report" in pages.words(page)
    window = browser.open(page, width=900)
    link = "document.querySelector('.facts dd a')"
    window.evaluate(f"{link}.scrollIntoView()")
    box = f"{link}.getBoundingClientRect()"
    x, y = window.evaluate(f"(box => [box.x + box.width / 2, box.y + box.height / 2])({box})")
    for kind in ("mousePressed", "mouseReleased"):
        window.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1})
    assert window.until(f"location.href.split('#')[0] === {json.dumps(search.as_uri())}")


def test_seal_holds_until_a_trial_changes(searched: FinishedSearch, tmp_path: Path) -> None:
    search_run = searched.copy_to(tmp_path)
    page = pages.draw(run_of(search_run))
    engram = Here(tmp_path)
    verified = engram.json("verify", str(page))
    assert {check["state"] for check in verified["checks"]} == {"agrees"}
    trials = rows(search_run)
    trials[2]["memorization"] = 0.0
    rewritten(search_run, trials)
    verified = engram.json("verify", str(page), code=1)
    changed = []
    for check in verified["checks"]:
        if check["state"] != "agrees":
            changed.append(check["name"])
    assert changed == [f"trials of {search_run.name}", page.name]


def test_unfinished_search_has_a_notice(searched: FinishedSearch, tmp_path: Path) -> None:
    search_run = searched.copy_to(tmp_path)
    trials = rows(search_run)[:4]
    trials[1] |= {"state": "refused", "run": "", "note": "wide is on; <b>no</b>", "front": False}
    trials[1] |= {name: None for name in trials[1] if name.startswith(("memorization", "utility"))}
    trials[2] |= {"state": "stopped early", "epochs": 2, "front": False}
    search = {}
    for name, value in journal(search_run).about()["search"].items():
        if name != "recommendation":
            search[name] = value
    rewritten(search_run, trials, search=search)
    page_text = pages.words(pages.draw(run_of(search_run)))
    assert "This search is not finished: 3 of 4 trials are done" in page_text
    assert "There is no answer yet." in page_text
    assert "refused: wide is on; <b>no</b>" in page_text
    assert "stopped early at epoch 2" in page_text
    assert f"engram search --resume {search_run.name} The command continues" in page_text


def read_results(search_run: FinishedSearch) -> SearchResults:
    search = run_of(search_run).search
    assert search is not None
    return search


def test_each_kind_of_trial_has_its_own_shape(search_run: FinishedSearch) -> None:
    kinds = [point.kind for point in pareto_front.points(read_results(search_run))]
    assert set(kinds) >= {"start", "winner", "front", "fresh start", "fresh winner"}
    looks = [(look.marker, look.filled, look.size) for look in LOOKS.values()]
    assert len(set(looks)) == len(looks)


def test_figure_has_text_alternative_and_utility_limit(search_run: FinishedSearch) -> None:
    (figure,) = figures(run_of(search_run))
    assert "Start: memory 0.8" in figure.alt
    assert "Winner, fresh seeds, trial 1: memory 0.4" in figure.alt
    for words in ("memory, nats (lower is better)", "skill, share", "lowest acceptable utility", "on the front"):
        assert words in figure.svg
    assert "Hollow marks: audited again with fresh seeds. They decide the answer" in figure.caption


def test_axes_point_towards_better_values(search_run: FinishedSearch, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(search_run)
    objectives = run.objectives
    assert objectives is not None
    limits: list[Any] = []
    original_limits = pareto_front.axis_limits

    def record_limits(*arguments: Any) -> Any:
        limits.append(original_limits(*arguments))
        return limits[-1]

    monkeypatch.setattr(pareto_front, "axis_limits", record_limits)
    for better in ("lower", "higher"):
        objectives_variant = replace(
            objectives,
            memorization=replace(objectives.memorization, better=better),
            utility=replace(objectives.utility, better=better),
        )
        vars(run)["objectives"] = objectives_variant
        assert len(list(pareto_front.pareto_front(run))) == 1
    ((left, right), (high, low)), ((right_too, left_too), (low_too, high_too)) = limits
    assert left < right
    assert left_too < right_too
    assert low < high
    assert low_too < high_too


def test_search_of_missing_audit_shows_trials(searched: FinishedSearch, tmp_path: Path) -> None:
    search_run = searched.copy_to(tmp_path)
    for run in [search_run.name, *{row["run"] for row in rows(search_run)}]:
        sibling = journal(search_run).sibling(run)
        sibling.rewrite({**sibling.about(), "audit": "gone"})
    page_text = pages.words(pages.draw(run_of(search_run)))
    assert "0.006" in page_text
    assert "memorisation 95 % interval utility 95 % interval" in page_text
