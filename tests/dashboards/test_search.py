"""The page of a search: its answer first, then its front and every trial, and a seal that holds for them."""

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


def run_of(made: FinishedSearch) -> Run:
    return open_run(open_store(str(made.store)), made.name)


@pytest.fixture(scope="module")
def made(searched: FinishedSearch, tmp_path_factory: pytest.TempPathFactory) -> FinishedSearch:
    return searched.copy_to(tmp_path_factory.mktemp("drawn"))


@pytest.fixture(scope="module")
def drawn(made: FinishedSearch) -> Path:
    return pages.draw(run_of(made))


@pytest.fixture(scope="module")
def opened(browser: Browser, drawn: Path) -> Page:
    return browser.open(drawn, width=390)


def test_page_has_certificate_front_trials_and_next_command(made: FinishedSearch, drawn: Path) -> None:
    said = pages.words(drawn)
    sentence = made.printed["recommendation"]["sentence"]
    places = [
        "Question Which training memorises least and is still useful enough? 4 trainings with different rate and wide",
        "Answer recommended",
        sentence,
        "0.320: estimate",
        "What this means Recommended:",
        "How reliable is this?",
        "at most 2.5 of 100 searches",
        "What this does not show",
        "Next steps Train with rate=0.006, wide=false",
        "Audited items and results",
        "How much utility does less memorisation cost?",
        "Audited again with fresh seeds",
        "Trials of the search",
        "Varied settings rate 0.006,0.01 wide false,true",
        f"engram search --resume {made.name} --trials 8",
    ]
    found = [said.find(place) for place in places]
    assert -1 not in found, places[found.index(-1)]
    assert sorted(found) == found


def test_trial_numbers_equal_tables(made: FinishedSearch, opened: Page) -> None:
    table = rows(made)
    found = opened.evaluate(TABLES)
    assert len(found) == len(table) == 7
    again = [row for row in table if row["part"] == "fresh"]
    for (name, values), row in zip(found, [*again, *(row for row in table if row not in again)], strict=True):
        assert [repr(row[number]) for number in NUMBERS] == values
        assert name.startswith("start" if row["trial"] == 0 else f"{row['trial']}")
        assert row["front"] == ("front" in name)


def test_search_page_is_accessible_and_fits_a_phone(opened: Page) -> None:
    found = opened.evaluate(STRUCTURE)
    assert (found["headings"][0], found["headings"].count(1)) == (1, 1)
    assert all(below - above <= 1 for above, below in pairwise(found["headings"]))
    assert sorted(set(found["ids"])) == sorted(found["ids"])
    assert tuple(found[name] for name in ("unnamed", "tables", "headers", "scripts", "targets")) == ([], 0, 0, 0, 0)
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    wide = opened.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] == wide[1] <= 390
    assert opened.complaints() == []
    assert len(opened.requests()) == 1


def test_search_page_links_to_drawn_runs(searched: FinishedSearch, tmp_path: Path) -> None:
    made = searched.copy_to(tmp_path)
    first = rows(made)[0]["run"]
    pages.draw(open_run(open_store(str(made.store)), first))
    page = pages.draw(run_of(made))
    links = re.findall(r'href="(\.\./[^"]+)"', page.read_text())
    assert {f"../{first}/report.html"} == set(links)
    assert all((page.parent / link).is_file() for link in links)


def test_a_trials_page_leads_back_to_its_search(searched: FinishedSearch, browser: Browser, tmp_path: Path) -> None:
    made = searched.copy_to(tmp_path)
    store = open_store(str(made.store))
    first = rows(made)[0]["run"]
    alone = pages.draw(open_run(store, first))
    assert "../" not in alone.read_text()  # there is no page to lead to
    assert f"search the start and trial 2 of {made.name} created" in pages.words(alone)
    search = pages.draw(run_of(made))
    page = pages.draw(open_run(store, first))
    assert f"This run is the start and trial 2 of {made.name}. engram report" in pages.words(page)
    window = browser.open(page, width=900)
    box = "document.querySelector('header dd a').getBoundingClientRect()"
    x, y = window.evaluate(f"(box => [box.x + box.width / 2, box.y + box.height / 2])({box})")
    for kind in ("mousePressed", "mouseReleased"):
        window.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1})
    assert window.until(f"location.href.split('#')[0] === {json.dumps(search.as_uri())}")


def test_its_seal_holds_until_a_trial_is_another(searched: FinishedSearch, tmp_path: Path) -> None:
    made = searched.copy_to(tmp_path)
    page = pages.draw(run_of(made))
    engram = Here(tmp_path)
    told = engram.json("verify", str(page))
    assert {"agrees"} == {check["state"] for check in told["checks"]}
    own = rows(made)
    own[2]["memorization"] = 0.0
    rewritten(made, own)
    told = engram.json("verify", str(page), code=1)
    changed = [check["name"] for check in told["checks"] if check["state"] != "agrees"]
    assert [f"trials of {made.name}", page.name] == changed


def test_unfinished_search_has_a_notice(searched: FinishedSearch, tmp_path: Path) -> None:
    made = searched.copy_to(tmp_path)
    own = rows(made)[:4]
    own[1] |= {"state": "refused", "run": "", "note": "wide is on; <b>no</b>", "front": False}
    own[1] |= {name: None for name in own[1] if name.startswith(("memorization", "utility"))}
    own[2] |= {"state": "stopped early", "epochs": 2, "front": False}
    search = {name: value for name, value in journal(made).about()["search"].items() if name != "recommendation"}
    rewritten(made, own, search=search)
    said = pages.words(pages.draw(run_of(made)))
    assert "This search is not finished: 3 of 4 trials are done" in said
    assert "There is no answer yet." in said
    assert "refused: wide is on; <b>no</b>" in said
    assert "stopped early at epoch 2" in said
    assert f"engram search --resume {made.name} The command continues" in said


def found(made: FinishedSearch) -> SearchResults:
    search = run_of(made).search
    assert search is not None
    return search


def test_each_kind_of_trial_has_its_own_shape(made: FinishedSearch) -> None:
    kinds = [point.kind for point in pareto_front.points(found(made))]
    assert {"start", "winner", "front", "fresh start", "fresh winner"} <= set(kinds)
    looks = [(look.marker, look.filled, look.size) for look in LOOKS.values()]
    assert len(set(looks)) == len(looks)


def test_figure_has_text_alternative_and_utility_limit(made: FinishedSearch) -> None:
    (figure,) = figures(run_of(made))
    assert "Start: memory 0.8" in figure.alt
    assert "Winner, fresh seeds, trial 1: memory 0.4" in figure.alt
    for words in ("memory, nats (lower is better)", "skill, share", "lowest acceptable utility", "on the front"):
        assert words in figure.svg
    assert "Hollow marks: audited again with fresh seeds. They decide the answer" in figure.caption


def test_axes_point_towards_better_values(made: FinishedSearch, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(made)
    objectives = run.objectives
    assert objectives is not None
    limits: list[Any] = []
    scaled = pareto_front.axis_limits

    def kept(*arguments: Any) -> Any:
        limits.append(scaled(*arguments))
        return limits[-1]

    monkeypatch.setattr(pareto_front, "axis_limits", kept)
    for better in ("lower", "higher"):
        other = replace(
            objectives,
            memorization=replace(objectives.memorization, better=better),
            utility=replace(objectives.utility, better=better),
        )
        vars(run)["objectives"] = other
        assert len(list(pareto_front.pareto_front(run))) == 1
    ((left, right), (high, low)), ((right_too, left_too), (low_too, high_too)) = limits
    assert left < right
    assert left_too < right_too
    assert low < high
    assert low_too < high_too


def test_search_of_missing_audit_shows_trials(searched: FinishedSearch, tmp_path: Path) -> None:
    made = searched.copy_to(tmp_path)
    for run in [made.name, *{row["run"] for row in rows(made)}]:
        there = journal(made).sibling(run)
        there.rewrite({**there.about(), "audit": "gone"})
    said = pages.words(pages.draw(run_of(made)))
    assert "0.006" in said
    assert "memorisation 95 % interval utility 95 % interval" in said
