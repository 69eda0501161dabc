"""The measured rates of decisions: one file, from which the page and the certificates are rendered."""

import typing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.spec.audits import find
from studies import decision_rates
from tasks.audits.relational.config import Answers, Linear, Relational
from tasks.contract.alternatives import tagged_members
from tasks.contract.certificate import Certificate
from tasks.contract.decision_rates import DecisionRate, add_rates, count_of, describe_rates, read_rates, write_rates

AUDITS = sorted({study.audit for study in decision_rates.STUDIES})
RATE = DecisionRate("density", "", "simulated", True, "nothing, at all", 0, 19, 1, 0, "1 to 20", "2026-11-28")


def test_the_file_keeps_every_field(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    write_rates([RATE], path)
    assert read_rates(path) == (RATE,)


def test_the_page_is_rendered_from_the_file() -> None:
    page = decision_rates.PAGE.read_text(encoding="utf-8")
    assert page == decision_rates.render_page(read_rates()), "run `python -m studies decision_rates --page`"


@pytest.mark.parametrize("audit", AUDITS)
def test_audit_pages_are_rendered_from_the_file(audit: str) -> None:
    page = decision_rates.page_of(audit).read_text(encoding="utf-8")
    assert page == decision_rates.update_section(page, read_rates(), audit), (
        "run `python -m studies decision_rates --page`"
    )


@pytest.mark.parametrize("audit", AUDITS)
def test_every_audit_states_its_measured_rates(audit: str) -> None:
    rates = [rate for rate in read_rates() if rate.audit == audit]
    assert {rate.is_innocent for rate in rates} == {True, False}
    assert min(rate.audits for rate in rates) >= 20
    innocent = next(rate for rate in rates if rate.is_innocent)
    assert f"({innocent.subject}): {innocent.accused} false alarm" in describe_rates(audit, innocent.question)


def test_an_audit_without_measurements_states_none() -> None:
    assert describe_rates("somebody_elses") == ""


@pytest.mark.parametrize(
    ("evidence", "kind", "accused", "alarms"),
    [("simulated scores", "simulated ", 1, "1 false alarm"), ("trained models", "", 0, "0 false alarms")],
)
def test_outcomes_of_first_study_are_listed(
    evidence: str, kind: str, accused: int, alarms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    innocent = replace(RATE, evidence=evidence, subject="noise", accused=accused, cleared=17, undecided=2)
    weak = replace(RATE, evidence=evidence, is_innocent=False, subject="weak")
    strong = replace(weak, subject="strong", accused=18, cleared=1, undecided=0, not_assessable=1)
    other_rates = [replace(innocent, evidence="another study"), replace(innocent, question="another")]
    monkeypatch.setattr("tasks.contract.decision_rates.read_rates", lambda: (innocent, weak, strong, *other_rates))
    assert describe_rates("density") == (
        f"As a check, we ran this audit on {19 + accused} {kind}cases without memorisation (noise): {alarms}, "
        f"2 undecided (too little evidence). On 20 {kind}cases with memorisation (strong): 18 detected, "
        "1 not assessable, 1 missed."
    )


@pytest.mark.parametrize("audit", AUDITS)
def test_studied_questions_exist(audit: str) -> None:
    hints = typing.get_type_hints(find(audit).audit.config, include_extras=True)
    tags = set(tagged_members(hints.get("question")) or [""])
    assert {rate.question for rate in read_rates() if rate.audit == audit} <= tags


@pytest.mark.parametrize(
    ("audit", "studied", "other"),
    [
        ("text", "secrets", "documents"),
        ("relational", "answers", "linear"),
        ("forgetting", "scores", "examples"),
        ("density", "memorization", "kernel"),
    ],
)
def test_rates_describe_the_studied_question_only(audit: str, studied: str, other: str) -> None:
    assert "As a check, we ran this audit" in describe_rates(audit, studied)
    assert describe_rates(audit, other) == ""


def test_certificate_of_another_question_quotes_no_rates() -> None:
    certificate = Certificate("", (), "", "Errors are rare.", "", ())
    assert "As a check" in add_rates(certificate, "relational", Relational(Answers())).other_errors
    assert add_rates(certificate, "relational", Relational(Linear())) == certificate


def test_counts_have_exact_intervals() -> None:
    assert count_of(0, 20) == "0 of 20 audits (0 to 17 %)"


def test_smallest_amount_is_that_from_which_power_stays() -> None:
    def holder(subject: str, accused: int) -> DecisionRate:
        return DecisionRate("density", "", "simulated", False, subject, accused, 0, 20 - accused, 0, "1 to 20", "")

    rates = [RATE, holder("small", 20), holder("medium", 10), holder("large", 16), holder("larger", 20)]
    (sentence,) = decision_rates.describe_smallest(rates, "density")
    assert sentence == "large, found in 16 of 20 audits (56 to 94 %) (simulated)."


def test_a_study_counts_every_subject(tmp_path: Path) -> None:
    (study,) = [candidate for candidate in decision_rates.STUDIES if candidate.audit == "density"]
    rates = list(decision_rates.measure(study, range(800_100, 800_102), tmp_path))
    assert [rate.audits for rate in rates] == [2, 2]
    assert rates[1].accused == 2
