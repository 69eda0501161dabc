"""Verdict and certificate for a case, for a case that defines its texts, and without evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from tasks.contract.answering import NO_ERROR_RATE, Answering, AnsweringByQuestion, Null
from tasks.contract.certificate import STEPS, Finding, NumberLine
from tasks.contract.conditions import Condition, confirm, ensure, require
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, first_row, index_rows, row


@dataclass(frozen=True)
class Config:
    is_null: bool = False
    asks_others: bool = False
    label: str = "label"
    is_shared: bool = True


@dataclass(frozen=True)
class Evidence:
    share: float


def line(_config: Config, evidence: Evidence) -> NumberLine:
    return NumberLine("share", evidence.share)


MEMORISED = Case[Evidence](
    "memorised",
    "the share is above {least}",
    lambda evidence: evidence.share > 0.5,
    "At most {wrong} are called so.",
    further_error="At most {chance} are found by chance.",
    because=lambda _config, evidence: f", more than half: {evidence.share:g} > .5.",
    steps=("Train again.",),
    rows=lambda _evidence: (("others", "{}"),),
)
NOT_ASSESSABLE = Case[Evidence](
    "not assessable",
    "the share is negative",
    lambda evidence: evidence.share < 0,
    describe=lambda _config, _evidence: "a share cannot be negative",
    explain=lambda config, evidence: f"The {config.label} {evidence.share:g} is wrong.",
    line=line,
    reasons=lambda config, evidence: (f"Count {evidence.share:g} again, {config.label}.",),
)
UNDECIDED = undecided(steps=lambda _config, evidence: ("Ask.",) if evidence is None else (f"Not {evidence.share:g}.",))
NUMBERS = {"least": "half", "wrong": "5", "chance": "7"}


OF_MEMORY = require("no one else knew", "the owner", "memorised")
OF_OTHERS = ensure("it was drawn", "not detected")
UNMET = confirm("they are alike", False, "not detected")
OPEN = confirm("they agree", None)
CONDITIONS = (OF_MEMORY, OF_OTHERS, UNMET, OPEN)


def read(_config: Config, summary: pa.Table) -> Evidence | None:
    share = first_row(index_rows(summary), "share")
    return None if share is None else Evidence(share["estimate"])


ANSWERING = Answering[Evidence](
    asked=lambda _config, evidence: "Is it?" if evidence is None else "Is it so?",
    rules=Rules((MEMORISED, NOT_ASSESSABLE, UNDECIDED), lambda _config: NUMBERS),
    read=read,
    unread=lambda _config: "no model was evaluated.",
    limits=lambda config, evidence: f"Not {config.label}." if evidence is None else f"Not {evidence.share:g}.",
    describe=lambda _config, evidence: f"the share is {evidence.share:g}",
    rows=lambda _evidence: (("share", "{}"),),
    details=lambda config, evidence: (f"A {config.label} of {evidence.share:g}.",),
    remarks=lambda config, evidence: ("", f"{'A' if config.is_null else 'No'} remark on {evidence.share:g}."),
    published=lambda evidence: f"The paper says {evidence.share:g}.",
    line=line,
    examined=lambda config: f"The {config.label} was examined.",
    null=Null(lambda config: config.is_null, lambda _config: "It is a null.", "null=false", notice="A null: "),
    conditions=lambda _config, _evidence: CONDITIONS,
)


def summary(share: float | None) -> pa.Table:
    rows = []
    for metric in ("people", "houses"):
        rows.append(row(metric, {}, Estimate(3.0, None, None, 3), metric))
    if share is not None:
        rows.append(row("share", {}, Estimate(share, None, None, 3), "share"))
    return pa.Table.from_pylist(rows, SUMMARY)


@pytest.mark.parametrize(
    ("share", "sentence", "rows"),
    [
        (0.7, "Memorised: the share is 0.7, more than half: 0.7 > .5. A label of 0.7. No remark on 0.7.", "others"),
        (
            -1.0,
            "Not assessable: a share cannot be negative. A label of -1. Count -1 again, label. No remark on -1.",
            "share",
        ),
        (0.2, "Undecided: the share is 0.2. A label of 0.2. No remark on 0.2.", "share"),
        (None, "Undecided: no model was evaluated.", "people"),
    ],
)
def test_verdict_uses_text_of_its_case(share: float | None, sentence: str, rows: str) -> None:
    verdict = ANSWERING.verdict(Config(), summary(share))
    assert verdict.answer == sentence.split(":")[0].lower()
    assert verdict.sentence == sentence
    assert [metric for metric, _ in verdict.rows] == [rows]
    assert verdict.limits == ("Not label." if share is None else f"Not {share:g}.")
    assert verdict.published == ("" if share is None else f"The paper says {share:g}.")


@pytest.mark.parametrize(
    ("share", "explanation", "has_line", "steps"),
    [
        (0.7, None, True, ("Train again.",)),
        (-1.0, "The label -1 is wrong.", False, STEPS["open"]),
        (0.2, None, True, ("Not 0.2.",)),
        (None, None, False, ("Ask.",)),
    ],
)
def test_certificate_explains_or_repeats_the_verdict(
    share: float | None, explanation: str | None, has_line: bool, steps: tuple[str, ...]
) -> None:
    verdict = ANSWERING.verdict(Config(), summary(share))
    page = ANSWERING.certificate(Config(), summary(share), verdict)
    (finding,) = page.findings
    assert finding.sentence == (explanation or verdict.sentence)
    assert (finding.line is not None) == has_line
    assert page.asked == ("Is it?" if share is None else "Is it so?")
    assert page.steps == steps
    assert page.rule.startswith(
        "The answer is “memorised” if the share is above half. Otherwise it is “not assessable”"
    )
    errors = ("At most 5 are called so.", "At most 7 are found by chance.")
    if verdict.answer != "memorised":
        errors = (NO_ERROR_RATE, " ".join(errors))
    assert (page.error, page.other_errors) == errors
    assert page.examined == "The label was examined."
    assert page.beyond == verdict.limits


@pytest.mark.parametrize(
    ("share", "conditions"),
    [(0.7, (OF_MEMORY, OPEN)), (-1.0, (UNMET, OPEN)), (0.2, (UNMET, OPEN)), (None, (UNMET, OPEN))],
)
def test_conditions_are_those_of_the_answer(share: float | None, conditions: tuple[Condition, ...]) -> None:
    verdict = ANSWERING.verdict(Config(), summary(share))
    assert verdict.conditions == conditions
    assert ANSWERING.certificate(Config(), summary(share), verdict).conditions == conditions
    assert verdict.limits_in_full.endswith(f"Condition: {OPEN.text}")


@pytest.mark.parametrize(("decisive", "error"), [(1, "First rate."), (2, "First rate."), (0, ""), (3, "")])
def test_error_rate_is_that_of_the_answer(decisive: int, error: str) -> None:
    cases = (
        replace(NOT_ASSESSABLE, error=""),
        replace(MEMORISED, error="First rate.", further_error=""),
        replace(MEMORISED, error="", further_error=""),
        UNDECIDED,
        replace(NOT_ASSESSABLE, error="Rate for another reason."),
    )
    rules = Rules(cases, lambda _config: NUMBERS)
    stated, others = rules.explain_errors(Config(), cases[decisive])
    assert stated == error
    assert ("First rate." in others) == (error == "")
    assert others.endswith("Rate for another reason.")


def test_not_assessable_repeats_the_verdict_without_a_line() -> None:
    silent = replace(
        ANSWERING, rules=Rules((replace(NOT_ASSESSABLE, explain=None), UNDECIDED), lambda _config: NUMBERS)
    )
    explained = replace(silent, explain=lambda _config, evidence: f"{evidence.share:g} of 1.")
    verdict = explained.verdict(Config(), summary(-1.0))
    (finding,) = explained.certificate(Config(), summary(-1.0), verdict).findings
    assert finding.sentence == verdict.sentence
    assert finding.line is None
    (other_finding,) = explained.certificate(Config(), summary(0.2), explained.verdict(Config(), summary(0.2))).findings
    assert other_finding.sentence == "0.2 of 1."
    assert other_finding.line == line(Config(), Evidence(0.2))


@pytest.mark.parametrize("share", [0.7, 0.2, None])
def test_null_is_named_and_leads_to_actual_audit(share: float | None) -> None:
    verdict = ANSWERING.verdict(Config(is_null=True), summary(share))
    page = ANSWERING.certificate(Config(is_null=True), summary(share), verdict)
    assert verdict.sentence.endswith("It is a null.") == (share is not None)
    assert page.findings[0].sentence == f"A null: {verdict.sentence}"
    assert "null=false" in page.steps[-1]
    assert ("false alarm" in page.steps[0]) == (verdict.answer == "memorised")


def test_audit_may_define_findings_and_rules() -> None:
    several = replace(
        ANSWERING,
        findings=lambda config, evidence, first: (first, Finding(config.label, f"{evidence.share:g}")),
        stated=lambda _config, evidence: ("The rule.", "" if evidence is None else "The error.", ""),
    )
    for share, error in ((0.7, "The error."), (None, "")):
        page = several.certificate(Config(), summary(share), several.verdict(Config(), summary(share)))
        assert page.rule == "The rule."
        assert page.error == error
        assert page.findings[1:] == (() if share is None else (Finding("label", "0.7"),))


def test_missing_parts_are_left_out() -> None:
    bare = Answering[Evidence](
        asked=ANSWERING.asked,
        rules=ANSWERING.rules,
        read=read,
        unread=ANSWERING.unread,
        limits=ANSWERING.limits,
        describe=ANSWERING.describe,
        rows=ANSWERING.rows,
    )
    verdict = bare.verdict(Config(is_null=True), summary(0.2))
    assert verdict.sentence == "Undecided: the share is 0.2."
    assert verdict.published == ""
    (finding,) = bare.certificate(Config(is_null=True), summary(0.2), verdict).findings
    assert finding == Finding("undecided", "Undecided: the share is 0.2.")


SHARED = replace(NOT_ASSESSABLE, scope="tables", applies=lambda config: config.is_shared)
FIRST = replace(
    ANSWERING,
    scope="some",
    applies=lambda config: not config.asks_others,
    rules=Rules((MEMORISED, SHARED, UNDECIDED), lambda _config: NUMBERS),
)
OTHERS = replace(
    ANSWERING,
    scope="others",
    applies=lambda config: config.asks_others,
    describe=lambda _config, _evidence: "of others",
    rules=Rules((SHARED, UNDECIDED), lambda _config: NUMBERS),
)
BOTH = AnsweringByQuestion((FIRST, OTHERS), lambda _config: NUMBERS)


def test_each_question_is_answered_by_its_own_rules() -> None:
    for config, sentence in ((Config(), "Memorised: the share"), (Config(asks_others=True), "Undecided: of others")):
        verdict = BOTH.verdict(config, summary(0.7))
        assert verdict.sentence.startswith(sentence)
        assert BOTH.certificate(config, summary(0.7), verdict).findings[0].sentence == verdict.sentence


def test_rules_of_all_questions_list_shared_cases_once() -> None:
    assert [(case.answer, case.scope) for case in BOTH.rules.cases] == [
        ("memorised", "some"),
        ("not assessable", "tables"),
        ("undecided", ""),
    ]
    memorised, shared, _undecided = BOTH.rules.cases
    configs = []
    for asks_others in (False, True):
        for is_shared in (True, False):
            configs.append(Config(asks_others=asks_others, is_shared=is_shared))
    assert [memorised.applies(config) for config in configs] == [True, True, False, False]
    assert [shared.applies(config) for config in configs] == [True, False, True, False]
