"""The certificate and the rule, in a real browser."""

from __future__ import annotations

import base64
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.certificate import (
    MASKED,
    RARITY_NOTE,
    RULE_NOTE,
    define_answer,
    list_conditions,
    list_steps,
    name_missing_details,
    split_rule,
    state_reliability,
)
from dashboards.run import Run, open_run
from orchestrator.inspection import page_seal
from orchestrator.run_folder import notes
from orchestrator.run_folder.notes import LONGEST_DETAIL, Details
from orchestrator.spec.specification import Spec
from orchestrator.store import Store
from tasks.contract.certificate import Certificate, Finding, state_rarity
from tasks.contract.conditions import Condition, confirm, ensure, require
from tasks.contract.crosswalk import Attack, describe_controls
from tasks.datasets.features import Words
from tests.dashboards import made, pages
from tests.support.browser import Browser, Page
from tests.tasks.audits.deja_vu import simulated_encoders as simulated

HEADINGS = "[...document.querySelectorAll('.certificate h3')].map(each => each.textContent)"
PAPER = {"width": 718, "height": 1047, "deviceScaleFactor": 1, "mobile": False}  # A4 less margins, in CSS pixels


def test_first_page_has_answer_and_next_steps(smoke: Run, opened: Page) -> None:
    assert opened.evaluate(HEADINGS) == [
        "Question", "Answer", "What this means", "How reliable is this?", "What this does not show", "Next steps",
        "What was examined", "Audited items and results",
    ]  # fmt: skip
    page_text = opened.evaluate("document.querySelector('.certificate').textContent")
    certificate = smoke.certificate
    assert certificate is not None
    (finding,) = certificate.findings
    meaning = define_answer(finding.answer, smoke.meaning_of(finding.answer))
    steps = list_steps(smoke, [certificate])
    texts = (certificate.examined, certificate.asked, meaning, RULE_NOTE, certificate.beyond, *steps)
    for text in (*texts, *certificate.error.split("\n")):
        assert text.replace("`", "") in page_text
    assert certificate.other_errors not in page_text
    assert [finding_shown.sentence for finding_shown in certificate.findings] == opened.evaluate(
        "[...document.querySelectorAll('.certificate .plain')].map(each => each.textContent)"
    )


def test_second_page_has_rule_published_score_and_controls(smoke: Run, opened: Page) -> None:
    assert smoke.verdict is not None
    assert smoke.certificate is not None
    published = smoke.verdict.published
    assert "t-test" in published
    assert "published" not in opened.evaluate("document.querySelector('.certificate').textContent")
    rule = opened.evaluate("document.querySelector('.opening').nextElementSibling.textContent")
    cases = split_rule(smoke.certificate.rule.replace("`", ""))
    assert len(cases) > 2
    for text in (*cases, smoke.certificate.other_errors, published, describe_controls([Attack.MEMBERSHIP])):
        assert text in rule
    assert "This score does not affect the answer." in rule


def test_first_page_lists_the_conditions_of_a_conclusion(store: Store) -> None:
    summary = simulated.summary_of(simulated.tables(0, "ABB", memory=0.5))
    run = made.run(store, "deja_vu-1", {"summary": [summary]}, simulated.CONFIG, audit="deja_vu")
    assert run.certificate is not None
    assert run.certificate.findings[0].answer == "memorised"
    conditions = list_conditions([run.certificate])
    assert conditions
    page_text = pages.words(pages.draw(run))
    assert all(condition in page_text for condition in conditions)


def with_conditions(*conditions: Condition) -> Certificate:
    return Certificate("", (), "", "", "", (), conditions=conditions)


def test_conditions_state_whether_they_are_met() -> None:
    conditions = (
        confirm("both sets are alike"),
        confirm("a check failed", is_met=False),
        confirm("a result is missing", is_met=None),
        ensure("chance decided"),
        require("nobody saw it", "the owner"),
    )
    assert list_conditions([with_conditions(*conditions)]) == [
        "Both sets are alike. The audit checked this: yes.",
        "A check failed. The audit checked this: no.",
        "A result is missing. The audit has not checked this yet.",
        "Chance decided. The audit did this itself, so it holds.",
        "Nobody saw it. The audit cannot check this; the owner must confirm it.",
    ]


def test_cells_list_the_conditions_that_they_share() -> None:
    shared = ensure("chance decided")
    cells = [with_conditions(shared), with_conditions(shared, require("nobody saw it", "the owner"))]
    assert list_conditions(cells[:1] * 2) == ["Chance decided. The audit did this itself, so it holds."]
    assert list_conditions(cells)[1:] == ["The page of each cell states its further conditions."]
    assert list_conditions([]) == []


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (Details(), "Not stated on this certificate: auditor, client, purpose, date of signature."),
        (Details(auditor="A. Bell"), "Not stated on this certificate: client, purpose."),
        (Details("", "A. Bell", "C. Dean", "due diligence"), ""),
    ],
)
def test_missing_details_are_named(details: Details, words: str) -> None:
    assert name_missing_details(details) == words


def test_steps_mark_settings_and_name_the_run(smoke: Run) -> None:
    steps = ("Train more models (`models=64`).", "Review them (`engram results RUN records` lists them).")
    assert list_steps(smoke, [replace(with_conditions(), steps=steps)]) == [
        "Train more models (for the technical team: models=64).",
        f"Review them (for the technical team: engram results {smoke.name} records lists them).",
    ]


def test_rate_to_quote_is_named_beside_a_rarity() -> None:
    rarity = state_rarity(0.001, "models that never saw it", "do so")
    for sentence, is_noted in ((rarity, True), ("12 of 400.", False)):
        page = replace(with_conditions(), error="At most 5 of 100.", findings=(Finding("memorised", sentence),))
        assert (RARITY_NOTE in state_reliability([page])) == is_noted


def test_mask_note_needs_a_mask(smoke: Run, page_path: Path) -> None:
    assert MASKED not in page_path.read_text()


def test_audited_items_have_digests(smoke: Run, opened: Page) -> None:
    rows = "[...document.querySelectorAll('#audited tr')].slice(1)"
    cells_shown = opened.evaluate(f"{rows}.map(row => [...row.cells].map(each => each.innerText))")
    things = page_seal.audited_items(smoke.journal, smoke.store)
    (summary,) = (table for table in page_seal.tables(smoke.journal, smoke.store) if table.name == "summary")
    assert [tuple(row[:3]) for row in cells_shown] == [
        *((audited_item.what, audited_item.name, audited_item.digest) for audited_item in things),
        ("result", "summary", summary.digest),
    ]
    assert {tuple(row[3:]) for row in cells_shown[: len(things)]} == {("embedded in the program", "")}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", cells_shown[-1][4])


def test_certificate_fits_one_sheet_and_a_phone(browser: Browser, page_path: Path) -> None:
    page = browser.open(page_path)
    page.call("Emulation.setEmulatedMedia", {"media": "print"})
    page.call("Emulation.setDeviceMetricsOverride", PAPER)
    assert page.evaluate("document.querySelector('.certificate').getBoundingClientRect().bottom") < PAPER["height"]
    assert page.evaluate("getComputedStyle(document.querySelector('.certificate')).breakAfter") == "page"
    narrow = browser.open(page_path, width=390)
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 390


def test_private_words_are_masked(store: Store) -> None:
    config = made.embedded(feature=Words("JANE DOE", size=9))
    run = made.run(store, "unique_feature-1", made.tables(6), config)
    certificate = pages.draw(open_run(store, run.name)).read_text()
    assert "JANE" not in certificate
    assert "&lt;4 and 3 letters&gt;" in certificate.partition("</section>")[0]
    assert MASKED in certificate.partition("</section>")[0]


def test_sweep_has_one_row_per_cell(swept: Run, drawn_sweep: Path, browser: Browser) -> None:
    page = browser.open(drawn_sweep)
    rows = "[...document.querySelectorAll('.certificate table:not(#audited) tbody tr')]"
    assert page.evaluate(f"{rows}.map(row => row.cells[0].textContent)") == ["A", "X"]
    answers = [cell.verdict.answer for cell in swept.cells if cell.verdict]
    badges = page.evaluate(f"{rows}.map(row => row.querySelector('.badge').innerText)")
    assert answers == [text.strip() for text in badges]
    page_text = page.evaluate("document.querySelector('.certificate').textContent")
    assert page_text.count("Is a feature that occurs in a single training image memorised?") == 1
    assert page_text.count("Not detected does not mean safe") == 1  # limits of all cells appear once


def cells(store: Store, count: int) -> Run:
    """A sweep of `count` cells; every third one has no effect."""
    made_up = []
    for index in range(count):
        made_up.append(
            made.run(
                store,
                f"unique_feature-{index:08d}",
                {"summary": made.tables(6, effect=0.4 if index % 3 else 0.0, seed=index)["summary"]},
                made.embedded(seed=index, batch=16 + index % 2),
                {"seed": index, "batch": 16 + index % 2},
            )
        )
    return made.sweep(store, "unique_feature-sweep-1", made_up)


def sheets(browser: Browser, page_path: Path) -> int:
    """The number of A4 sheets on which Chromium prints the page's head and certificate."""
    page = browser.open(page_path)
    page.evaluate("""(() => {
        const certificate = document.querySelector(".certificate");
        for (const first of [certificate, certificate.parentElement])
            while (first.nextElementSibling) first.nextElementSibling.remove();
        document.querySelector("footer").remove();
        certificate.style.breakAfter = "auto";
    })()""")
    printed = base64.b64decode(page.call("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert b"/MediaBox [0 0 594.95996 841.91998]" in printed or b"/MediaBox [0 0 595" in printed
    return len(re.findall(rb"/Type\s*/Page\b", printed))


@pytest.mark.parametrize("count", [3, 20])
def test_certificate_fits_one_sheet_for_many_cells(store: Store, browser: Browser, count: int) -> None:
    swept = cells(store, count)
    if count == 3:
        notes.give_details(
            swept.journal.folder, dict.fromkeys(notes.DETAIL_NAMES, ("word " * LONGEST_DETAIL)[:LONGEST_DETAIL])
        )
    page_path = pages.draw(swept)
    assert sheets(browser, page_path) == 1
    page = browser.open(page_path)
    rows = page.evaluate("document.querySelectorAll('.certificate table:not(#audited) tbody tr').length")
    page_text = page.evaluate("document.querySelector('.certificate').innerText")
    if count == 3:
        assert rows == 3
        assert "more" not in " ".join(re.findall(r"And .*", page_text))
        return
    answers = Counter(cell.verdict.answer for cell in swept.cells if cell.verdict)
    badges = page.evaluate("[...document.querySelectorAll('.certificate tbody .badge')].map(each => each.innerText)")
    shown_answers = Counter(text.strip() for text in badges)
    assert 4 < rows < count
    assert shown_answers["memorised"] == min(rows, answers["memorised"])  # accusing cells come first
    assert re.search(rf"And {count - rows} more cells: .*; a table below lists them\.", page_text)
    for answer, number in (answers - shown_answers).items():
        assert f"{number} {answer}" in page_text
    assert f"And {count - rows} more, listed under Seal." in page_text
    assert page.evaluate("document.querySelectorAll('.answer tbody tr').length") == count


def test_run_without_answer_has_a_note(store: Store) -> None:
    page_text = pages.words(pages.draw(pages.ran(store, Spec("toys", "few"))))
    assert "Certificate This audit reports numbers without an answer." in page_text
