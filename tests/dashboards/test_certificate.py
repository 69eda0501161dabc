"""The first page: what a person can act on, looked at in a real browser."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from dashboards.certificate import MASKED
from dashboards.run import Run, open_run
from orchestrator.inspection import page_seal
from orchestrator.run_folder import notes
from orchestrator.run_folder.notes import LONGEST_DETAIL
from orchestrator.spec.specification import Spec
from orchestrator.store import Store
from tasks.contract.crosswalk import Attack, describe_controls
from tasks.datasets.features import Words
from tests.dashboards import made, pages
from tests.support.browser import Browser, Page

HEADINGS = "[...document.querySelectorAll('.certificate h3')].map(each => each.textContent)"
PAPER = {"width": 718, "height": 1047, "deviceScaleFactor": 1, "mobile": False}  # A4 less margins, in CSS pixels


def test_it_says_what_was_asked_answered_by_which_rule_and_what_to_do(smoke: Run, opened: Page) -> None:
    assert opened.evaluate(HEADINGS) == [
        "Asked", "Answered", "By which rule", "What it does not say", "Which controls it speaks to", "What to do next",
        "What was audited, and the result",
    ]  # fmt: skip
    said = opened.evaluate("document.querySelector('.certificate').textContent")
    certificate = smoke.certificate
    assert certificate is not None
    for text in (certificate.asked, certificate.rule, certificate.error, certificate.beyond, *certificate.steps):
        assert text.replace("`", "") in said
    assert describe_controls([Attack.MEMBERSHIP]) in said
    assert [each.sentence for each in certificate.findings] == opened.evaluate(
        "[...document.querySelectorAll('.certificate .plain')].map(each => each.textContent)"
    )


def test_what_the_papers_own_test_says_begins_the_second_sheet(smoke: Run, opened: Page) -> None:
    assert smoke.verdict is not None
    told = smoke.verdict.published
    assert "The published t-test" in told
    assert "published" not in opened.evaluate("document.querySelector('.certificate').textContent")
    after = "document.querySelector('.certificate').nextElementSibling"
    assert told in opened.evaluate(f"{after}.textContent")
    assert "not rest on it" in opened.evaluate(f"{after}.textContent")


def test_where_nothing_is_masked_none_is_said_to_be(smoke: Run, drawn: Path) -> None:
    assert MASKED not in drawn.read_text()


def test_what_was_audited_is_told_by_digest(smoke: Run, opened: Page) -> None:
    rows = "[...document.querySelectorAll('#audited tr')].slice(1)"
    found = opened.evaluate(f"{rows}.map(row => [...row.cells].map(each => each.innerText))")
    things = page_seal.audited_items(smoke.journal, smoke.store)
    (summary,) = (table for table in page_seal.tables(smoke.journal, smoke.store) if table.name == "summary")
    assert [*((each.what, each.name, each.digest) for each in things), ("result", "summary", summary.digest)] == [
        tuple(row[:3]) for row in found
    ]
    assert {("embedded: comes with the program", "")} == {tuple(row[3:]) for row in found[: len(things)]}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found[-1][4])


def test_it_is_one_sheet_of_paper_and_no_wider_than_a_telephone(browser: Browser, drawn: Path) -> None:
    page = browser.open(drawn)
    page.call("Emulation.setEmulatedMedia", {"media": "print"})
    page.call("Emulation.setDeviceMetricsOverride", PAPER)
    assert page.evaluate("document.querySelector('.certificate').getBoundingClientRect().bottom") < PAPER["height"]
    assert page.evaluate("getComputedStyle(document.querySelector('.certificate')).breakAfter") == "page"
    narrow = browser.open(drawn, width=390)
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_withheld_word_is_not_told_on_it(store: Store) -> None:
    config = made.embedded(feature=Words("JANE DOE", size=9))
    run = made.run(store, "unique_feature-1", made.tables(6), config)
    certificate = pages.draw(open_run(store, run.name)).read_text()
    assert "JANE" not in certificate
    assert "&lt;4 and 3 letters&gt;" in certificate.partition("</section>")[0]
    assert MASKED in certificate.partition("</section>")[0]


def test_a_sweep_has_a_line_for_each_cell(swept: Run, drawn_sweep: Path, browser: Browser) -> None:
    page = browser.open(drawn_sweep)
    rows = "[...document.querySelectorAll('.certificate table:not(#audited) tbody tr')]"
    assert page.evaluate(f"{rows}.map(row => row.cells[0].textContent)") == ["A", "X"]
    answers = [cell.verdict.answer for cell in swept.cells if cell.verdict]
    badges = page.evaluate(f"{rows}.map(row => row.querySelector('.badge').innerText)")
    assert answers == [text.strip() for text in badges]
    said = page.evaluate("document.querySelector('.certificate').textContent")
    assert said.count("Is a feature that occurs in one single training image memorised?") == 1
    assert said.count("Not detected is not safe") == 1  # what all cells do not say stands there once


def cells(store: Store, count: int) -> Run:
    """A sweep of so many cells, in every third of which nothing is remembered."""
    made_up = [
        made.run(
            store,
            f"unique_feature-{at:08d}",
            {"summary": made.tables(6, effect=0.4 if at % 3 else 0.0, seed=at)["summary"]},
            made.embedded(seed=at, batch=16 + at % 2),
            {"seed": at, "batch": 16 + at % 2},
        )
        for at in range(count)
    ]
    return made.sweep(store, "unique_feature-sweep-1", made_up)


def sheets(browser: Browser, drawn: Path) -> int:
    """How many sheets of A4 Chromium prints the page's head and its certificate on."""
    page = browser.open(drawn)
    page.evaluate("""(() => {
        const certificate = document.querySelector(".certificate");
        while (certificate.nextElementSibling) certificate.nextElementSibling.remove();
        document.querySelector("footer").remove();
        certificate.style.breakAfter = "auto";
    })()""")
    printed = base64.b64decode(page.call("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert b"/MediaBox [0 0 594.95996 841.91998]" in printed or b"/MediaBox [0 0 595" in printed
    return len(re.findall(rb"/Type\s*/Page\b", printed))


@pytest.mark.parametrize("count", [3, 20])
def test_one_sheet_holds_it_however_many_cells_there_are(store: Store, browser: Browser, count: int) -> None:
    swept = cells(store, count)
    if count == 3:
        notes.give_details(
            swept.journal.folder, dict.fromkeys(notes.DETAIL_NAMES, ("word " * LONGEST_DETAIL)[:LONGEST_DETAIL])
        )
    drawn = pages.draw(swept)
    assert sheets(browser, drawn) == 1
    page = browser.open(drawn)
    rows = page.evaluate("document.querySelectorAll('.certificate table:not(#audited) tbody tr').length")
    said = page.evaluate("document.querySelector('.certificate').innerText")
    if count == 3:
        assert rows == 3
        assert "more" not in " ".join(re.findall(r"And .*", said))
        return
    assert 4 < rows < 20
    answers = [cell.verdict.answer for cell in swept.cells if cell.verdict]
    shown = page.evaluate("[...document.querySelectorAll('.certificate tbody .badge')].map(each => each.innerText)")
    assert {"memorised"} == {text.strip() for text in shown}  # those that accuse come first
    left = [f"{answers.count('memorised') - rows} memorised", f"{answers.count('undecided')} undecided"]
    assert re.search(rf"And {20 - rows} more cells: .*; they are told below\.", said)
    assert all(count in said for count in left)
    assert f"And {20 - rows} more, under Seal below." in said
    assert page.evaluate("document.querySelectorAll('.answer tbody tr').length") == 20


def test_without_an_answer_it_says_so(store: Store) -> None:
    said = pages.words(pages.draw(pages.ran(store, Spec("toys", "few"))))
    assert "Certificate This audit gives its numbers without an answer in words." in said
