"""Verdict and certificate for scores that pass through the whole audit."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.relational import AUDIT
from tasks.audits.relational.answer import ERROR, LIMITS, RULES, SAME_SOURCE, memorization_row, utility_row, verdict
from tasks.audits.relational.config import About, Answers, Linear, Relational, given_system
from tasks.audits.relational.evaded_answers import FEW_RIGHT, MOST_FIXED, MOST_OTHER_KIND, Evasion
from tasks.audits.relational.evidence import Evidence, decisive_name, read_evidence
from tasks.audits.relational.measures import summary
from tasks.audits.relational.measures.evasions import EVASIONS
from tasks.audits.relational.measures.repeats import TWICE
from tasks.audits.relational.plain_words import NOTICE_OF_NULL
from tasks.audits.relational.presets import PRESETS, QUICKSTART
from tasks.audits.relational.repeated_questions import GUESSED, Repeats
from tasks.audits.relational.sentences import ADEQUATE
from tasks.contract.conditions import require
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, index_rows, row, row_name
from tasks.contract.verdict import BELOW_RELEVANT_SIZE, Verdict
from tasks.question_answering.predictions import Predictions
from tasks.question_answering.question_sets import AnswerRemoval, Corruption, DigitRemoval, NameRemoval, PatternRemoval
from tests.support.calibration import assert_rate, bounds
from tests.support.golden import Golden
from tests.support.settings import with_settings
from tests.tasks.audits.relational.made_up import (
    NUMERIC,
    counted_scores,
    draw_scores,
    memorization_of,
    questions,
    score_rows,
    table,
    verdict_of,
)

NULL = PRESETS["null"]
assert isinstance(NULL, Relational)
DECISIVE = {"at": "end", "golds": "one", "questions": "numeric", "score": "exact match"}


def test_large_m_is_memorised(golden: Golden) -> None:
    scores = counted_scores((30, 100), (5, 100))
    answer = verdict_of(scores)
    assert answer.answer == "memorised"
    golden(answer.sentence)
    assert answer.rows == (("relational m", json.dumps(DECISIVE, sort_keys=True)),)
    # with one gold answer each, m is as published
    assert answer.limits == LIMITS
    assert answer.conditions == (require(SAME_SOURCE, "the owner of the data"),)
    assert answer.published == ""


def test_wide_interval_is_undecided(golden: Golden) -> None:
    scores = counted_scores((10, 100), (10, 100))
    answer = verdict_of(scores)
    assert answer.answer == "undecided"
    golden(answer.sentence)
    assert verdict_of(scores, config=with_settings(QUICKSTART, negligible=0.2)).answer == "not detected"


def evasion_table(other_kind: int) -> pa.Table:
    """Return the table of evasions of 100 questions per part, with this number of answers of another kind."""
    row_of = {"questions": 100, "unanswered": 0, "other_kind": other_kind, "one_text": 0.0, "few_texts": 0.0}
    row_of |= {"right": min(5, 100 - other_kind), "constant": 0.05, "p_value": 0.6}
    return pa.Table.from_pylist([{"split": split} | row_of for split in ("train", "validation")], EVASIONS)


GIVEN = with_settings(QUICKSTART, predictions=Predictions("theirs"))


BLINDED = with_settings(QUICKSTART, predictions=Predictions("theirs.json"))
CLEAR = {"low": -0.01, "high": 0.0199}
PARTS = ("train", "validation")


def evidence_of(m: dict[str, float], evasions: tuple[Evasion, ...] = (), repeats: Repeats | None = None) -> Evidence:
    return Evidence(("m", "{}"), m, True, {}, None, evasions, None, repeats, negligible=0.02)


HONEST = Evasion(600)


@pytest.mark.parametrize(
    ("config", "m", "repeats", "answer"),
    [
        (QUICKSTART, {"low": 0.0201, "high": 0.3}, None, "memorised"),
        (QUICKSTART, {"low": 0.02, "high": 0.3}, None, "undecided"),  # it may be negligible
        (QUICKSTART, {"low": 1e-9, "high": 0.01}, None, "below the relevant size"),  # precedes not detected
        (QUICKSTART, {"low": 0.0, "high": 0.03}, None, "undecided"),
        (QUICKSTART, CLEAR | {"high": 0.02}, None, "undecided"),
        (QUICKSTART, {"low": -0.2, "high": -0.1}, None, "not detected"),
        (GIVEN, CLEAR, None, "not detected"),
        (GIVEN, {"low": -0.2, "high": -0.0201}, None, "not assessable"),  # trained questions are answered worse
        (GIVEN, {"low": -0.2, "high": -0.02}, None, "undecided"),  # a little worse, as by chance
        (GIVEN, {"low": -0.2, "high": 0.0}, None, "not detected"),
        (BLINDED, CLEAR, None, "not assessable"),
        (BLINDED, CLEAR, Repeats(1, 20, "ab"), "not detected"),
        (BLINDED, CLEAR, Repeats(2, 20, "ab"), "not assessable"),
        (BLINDED, {"low": 0.03, "high": 0.3}, Repeats(20, 20, "ab"), "memorised"),
    ],
)
def test_first_matching_rule_decides(
    config: Relational, m: dict[str, float], repeats: Repeats | None, answer: str
) -> None:
    evasions = () if given_system(config) is None else (HONEST, HONEST)
    assert RULES.decide(config, evidence_of(m, evasions, repeats)).answer == answer


def test_negative_m_never_clears(golden: Golden) -> None:
    evidence = evidence_of({"low": -0.04, "high": -0.001}, (HONEST, HONEST))
    rule = RULES.decide(GIVEN, evidence)
    assert rule.answer == "undecided"
    golden(rule.because(GIVEN, evidence))


MOSTLY_EVADED = replace(HONEST, other_kind=MOST_OTHER_KIND + 0.01)


@pytest.mark.parametrize(
    ("train", "held_out", "answer"),
    [
        (HONEST, MOSTLY_EVADED, "not assessable"),
        (replace(MOSTLY_EVADED, unanswered=0.5), HONEST, "not assessable"),
        (HONEST, replace(HONEST, one_text=MOST_FIXED + 0.01), "not assessable"),
        (
            HONEST,
            replace(HONEST, right=0.01, constant=0.04, p_value=FEW_RIGHT),
            "not assessable",
        ),
        (
            HONEST,
            replace(HONEST, other_kind=0.5, right=0.01, constant=0.04, p_value=FEW_RIGHT),
            "not assessable",
        ),
        (HONEST, replace(HONEST, p_value=FEW_RIGHT + 1e-9), "not detected"),
        # Evaded answers might have been right at the same rate as the others.
        (replace(HONEST, few_texts=0.5), replace(HONEST, few_texts=0.5), "undecided"),
        (replace(HONEST, few_texts=-0.1), replace(HONEST, other_kind=0.001), "not detected"),
        # An owner may recognise training questions and evade the memorised ones.
        (replace(HONEST, other_kind=0.1), HONEST, "undecided"),
        (HONEST, replace(HONEST, other_kind=0.1), "undecided"),
    ],
)
def test_evaded_questions_never_clear(golden: Golden, train: Evasion, held_out: Evasion, answer: str) -> None:
    evidence = evidence_of(CLEAR, (train, held_out))
    rule = RULES.decide(GIVEN, evidence)
    assert rule.answer == answer
    golden(rule.because(GIVEN, evidence))
    accused = evidence_of({"low": 0.03, "high": 0.3}, (train, held_out))
    assert RULES.decide(GIVEN, accused).answer == "memorised"  # evasions cannot imitate memory
    # a model that is evaluated here hides nothing
    assert RULES.decide(QUICKSTART, evidence_of(CLEAR)).answer == "not detected"


@pytest.mark.parametrize(
    ("shares", "upper"),
    [
        ((0.0, 0.0), 0.01),
        ((0.5, 0.5), 0.02),
        ((0.02, 0.0), 0.01 / 0.98 + 0.02),
        ((0.02, 0.01), 0.01 / 0.98),  # within chance
        ((1.0, 1.0), float("inf")),
    ],
)
def test_upper_limit_counts_evaded_answers(shares: tuple[float, float], upper: float) -> None:
    train, held_out = (replace(HONEST, other_kind=share) for share in shares)
    assert evidence_of({"low": -0.01, "high": 0.01}, (train, held_out)).upper == pytest.approx(upper)


def stored_rows(questions: str = "numeric", **changes: float | None) -> pa.Table:
    """Return the rows that decide an answer; None: not measured."""
    names = {
        "relational m": decisive_name("relational m", questions),
        "m": decisive_name("m", questions),
        "m of all golds": decisive_name("m", questions, golds="all"),
        **{f"{kind} {split}": decisive_name(kind, questions, split=split) for kind in "rs" for split in PARTS},
        **{f"unanswered {contexts}": row_name("unanswered", contexts=contexts) for contexts in ("corrupted", "whole")},
    }
    default_values = {"relational m": 0.012, "m": 0.01, "m of all golds": 0.01}
    default_values |= {"r train": 0.3, "r validation": 0.05, "s train": 0.7, "s validation": 0.6}
    return pa.Table.from_pylist(
        [
            row(metric, json.loads(setting), Estimate(value, -0.01, 0.0199, 1200), "context")
            for name, (metric, setting) in names.items()
            if (value := (default_values | changes).get(name)) is not None
        ],
        SUMMARY,
    )


def test_evidence_is_read_from_the_summary() -> None:
    table = stored_rows(**{"unanswered corrupted": 0.5, "unanswered whole": 0.4})
    rows = index_rows(table)
    evidence = read_evidence(QUICKSTART, table)
    assert evidence is not None
    name = decisive_name("relational m", "numeric")
    r = {"train": 0.3, "validation": 0.05}
    assert Evidence(name, rows[name], True, r, 0.7, (), None, None, 0.02, pytest.approx(0.1)) == evidence
    with_published = read_evidence(QUICKSTART, stored_rows(**{"m of all golds": -0.05}))
    assert with_published is not None
    assert with_published.published == -0.05
    names = with_settings(QUICKSTART, corruption=NameRemoval(("Ada",)))
    both_tables = pa.concat_tables([stored_rows("all"), stored_rows("numeric")])
    evidence_of_both = []
    for config in (QUICKSTART, names):
        evidence_of_both.append(read_evidence(config, both_tables))
    assert [question_evidence is not None and question_evidence.numeric for question_evidence in evidence_of_both] == [
        True,
        False,
    ]
    unmeasured = pa.Table.from_pylist([rows[name] | {"estimate": None}], SUMMARY)
    for without_m in (stored_rows(**{"relational m": None}), unmeasured):
        assert read_evidence(QUICKSTART, without_m) is None
    assert (memorization_row(QUICKSTART, both_tables) or {})["estimate"] == 0.012
    assert (utility_row(QUICKSTART, both_tables) or {})["estimate"] == 0.6
    assert memorization_row(QUICKSTART, SUMMARY.empty_table()) is None
    assert utility_row(QUICKSTART, SUMMARY.empty_table()) is None


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        pytest.param(QUICKSTART, {}, id="plain"),
        pytest.param(QUICKSTART, {"s train": 0.0499, "m of all golds": -0.05}, id="nothing learnt"),
        pytest.param(QUICKSTART, {"s train": ADEQUATE}, id="enough learnt"),
        pytest.param(NULL, {}, id="null"),
        pytest.param(BLINDED, {}, id="blinded"),
    ],
)
def test_answer_has_its_reason_and_remarks(golden: Golden, config: Relational, changes: dict[str, float]) -> None:
    answer = verdict(config, stored_rows(decisive(config), **changes))
    golden(answer.sentence, "sentence")
    golden(answer.published, "published")
    assert (decisive_name("relational m", decisive(config)),) == answer.rows


def decisive(config: Relational) -> str:
    assert isinstance(config.question, Answers)
    return "numeric" if config.question.corruption == DigitRemoval() else "all"


@pytest.mark.parametrize(("silence", "is_reported"), [(0.05, False), (0.0501, True)])
def test_silence_of_trained_model_is_reported(silence: float, is_reported: bool) -> None:
    shares = {"unanswered corrupted": silence, "unanswered whole": 0.0}
    words = "On corrupted contexts, 5 % more of the held-out questions are unanswered"
    assert is_reported == (words in verdict(QUICKSTART, stored_rows(**shares)).sentence)
    assert words not in verdict(GIVEN, stored_rows(**shares)).sentence


def test_verdict_names_source_of_question_order(golden: Golden) -> None:
    secret = with_settings(BLINDED, secret="s" * 16)
    repeats_row = row(TWICE, {"key": "ab12"}, Estimate(0.05, None, None, 20), "share")
    rows = pa.concat_tables([stored_rows(), pa.Table.from_pylist([repeats_row], SUMMARY)])
    open_order = verdict(BLINDED, rows).limits
    bound = verdict(secret, rows).limits
    unchecked = verdict(secret, stored_rows()).limits
    assert GUESSED in open_order
    assert GUESSED not in bound
    assert GUESSED not in unchecked
    assert "begins with ab12" not in open_order
    assert "begins with ab12" in bound
    assert "begins with ab12" not in unchecked
    system = given_system(secret)
    assert system is not None
    assert system.describe_draw() in bound
    assert "Not assessable" not in verdict(secret, rows).sentence
    many_differing = repeats_row | {"estimate": 0.15}
    sentence = verdict(
        secret, pa.concat_tables([stored_rows(), pa.Table.from_pylist([many_differing], SUMMARY)])
    ).sentence
    golden(sentence)


def test_first_rule_that_holds_decides(golden: Golden) -> None:
    answers = [rule.answer for rule in RULES.cases]
    assert answers == ["memorised", *["not assessable"] * 5, BELOW_RELEVANT_SIZE, "not detected", "undecided"]
    answers = [rule.answer for rule in RULES.applicable_cases(QUICKSTART)]
    assert answers == ["memorised", "not assessable", BELOW_RELEVANT_SIZE, "not detected", "undecided"]
    rule_text = RULES.explain(QUICKSTART)
    golden(rule_text, "told")
    golden(RULES.explain(GIVEN), "RULES.explain(GIVEN)")


def test_search_minimises_m_and_keeps_accuracy() -> None:
    summary_table = summary(
        NUMERIC, [memorization_of(counted_scores((30, 100), (5, 100), whole=[1.0] * 60 + [0.0] * 40))]
    )
    assert AUDIT.objectives is not None
    both_objectives = AUDIT.objectives.memorization, AUDIT.objectives.utility
    rows = [objective.row(QUICKSTART, summary_table) for objective in both_objectives]
    assert [(objective.name, objective.better) for objective in both_objectives] == [
        ("relational m", "lower"),
        ("held-out accuracy", "higher"),
    ]
    assert [objective and objective["estimate"] for objective in rows] == [pytest.approx(0.25), pytest.approx(0.6)]
    assert json.loads((rows[1] or {})["setting"])["split"] == "validation"
    assert AUDIT.objectives.allowance == 0.02
    assert [objective.row(QUICKSTART, SUMMARY.empty_table()) for objective in both_objectives] == [None, None]


def test_different_published_m_is_stated(golden: Golden) -> None:
    best_of_several = table(
        score_rows("train", [1.0] * 30 + [0.0] * 70),
        score_rows("validation", [0.0] * 100, several=[1.0] * 35 + [0.0] * 65),
    )
    answer = verdict_of(best_of_several)
    assert answer.answer == "memorised"
    assert answer.limits == LIMITS
    assert answer.conditions == (require(SAME_SOURCE, "the owner of the data"),)
    golden(answer.published)


@pytest.mark.parametrize(
    ("corruption", "subject", "numeric"),
    [
        (NameRemoval(("Ada",)), "the names", False),
        (PatternRemoval("x"), "the pattern", False),
        (AnswerRemoval(), "the answers", False),
        (DigitRemoval(), "the digits", True),
    ],
)
def test_corruption_determines_decisive_questions(
    golden: Golden, corruption: Corruption, subject: str, numeric: bool
) -> None:
    names = [question.id for question in questions("train")[30:60]]
    train = [*score_rows("train", [1.0] * 30), *score_rows("train", [0.0] * 30, ids=names, numeric=False)]
    config = with_settings(QUICKSTART, corruption=corruption)
    answer = verdict_of(table(train, score_rows("validation", [0.0] * 60)), config=config, about=About("all"))
    golden(answer.sentence)
    assert numeric == ("with a numeric answer" in answer.sentence)
    assert ("numeric" if numeric else "all") == json.loads(answer.rows[0][1])["questions"]


def test_missing_part_is_undecided() -> None:
    empty = SUMMARY.empty_table()
    for answer in (verdict(QUICKSTART, empty), verdict_of(table(score_rows("train", [1.0, 0.0])))):
        assert answer.answer == "undecided"
        assert answer.sentence == "Undecided: no question of both parts has been answered."


def test_linear_model_gives_no_evidence(golden: Golden) -> None:
    answer = verdict(Relational(Linear()), SUMMARY.empty_table())
    golden(answer.sentence)
    golden(answer.limits, "found.limits")
    other_rows = pa.Table.from_pylist([row(name, {}, Estimate(0.5, None, None, 9), "step") for name in "ab"], SUMMARY)
    assert verdict(Relational(Linear()), other_rows).rows == (("a", "{}"),)
    assert verdict(QUICKSTART, other_rows).rows == (("a", "{}"),)


def count_answers(
    runs: int, contexts: tuple[int, int], rates: tuple[float, float], noise: float = 0.0, seed: int = 0
) -> Counter[str]:
    """Count the answers of random runs, from the scores of questions."""
    rng = np.random.default_rng(seed)
    answer: Counter[str] = Counter()
    for run in range(runs):
        outcome: Verdict = verdict_of(draw_scores(rng, contexts, rates, noise=noise), seed=run)
        answer[outcome.answer] += 1
    return answer


@pytest.mark.parametrize(("contexts", "seed"), [((60, 20), 1), ((150, 50), 2)])
def test_innocent_models_are_rarely_accused(contexts: tuple[int, int], seed: int) -> None:
    """One tenth of the hidden answers is known on both parts; 120 models each.

    Of 400 models with 60 training and 20 held-out contexts, 1 was called memorised and 24 not detected (375
    undecided); of 400 with 150 and 50 contexts, 2 and 41 (357 undecided). This is below the 2.5 % that the rule
    allows.
    """
    answer = count_answers(120, contexts, (0.1, 0.1), seed=seed)
    assert answer["memorised"] <= 0.025 * 120


@pytest.mark.parametrize(("noise", "rate"), [(0.5, 1.0), (0.8, 0.25)])
def test_mostly_random_answers_hide_memory(noise: float, rate: float) -> None:
    """A model gives 30 % of the hidden answers of 300 training contexts and 5 % of 100 held-out ones.

    An owner who answers a share of the questions on corrupted contexts wrongly reduces m by that share. Called
    memorised, of 40 such models each: 40 at 50 % noise, 34 at 70 %, 10 at 80 % and 0 at 90 % (the others undecided).
    """
    answer = count_answers(40, (300, 100), (0.3, 0.05), noise, seed=3)
    assert_rate(rate, answer["memorised"], 40)
    assert answer["not detected"] == 0 or noise >= 0.9


def test_general_knowledge_is_not_memory() -> None:
    """A model of the same domain gives 60 % of the hidden answers of both parts: 3 of 100 are accused, 95 undecided."""
    answer = count_answers(40, (150, 50), (0.6, 0.6), seed=4)
    assert answer["memorised"] <= bounds(0.025, 40)[1]
    assert answer["undecided"] >= 36


def test_certificate_states_share_with_interval(golden: Golden) -> None:
    scores = counted_scores((30, 100), (5, 100))
    certificate = AUDIT.certify("Does it?", QUICKSTART, summary(NUMERIC, [memorization_of(scores)]))
    assert certificate is not None
    (finding,) = certificate.findings
    assert finding.answer == "memorised"
    golden(finding.sentence)
    assert finding.line is not None
    assert [boundary.value for boundary in finding.line.boundaries] == [100 * Answers().negligible]
    assert finding.line.estimate == pytest.approx(25.0)
    assert certificate.error == ERROR


def test_linear_model_has_no_number_line() -> None:
    certificate = AUDIT.certify("Does it?", Relational(Linear()), SUMMARY.empty_table())
    assert certificate is not None
    (finding,) = certificate.findings
    assert finding.answer == "undecided"
    assert finding.line is None


def test_certificate_names_a_control_run(golden: Golden) -> None:
    for right, answer, step in ((30, "memorised", "This is a false alarm"), (5, "undecided", "Keep this page")):
        scores = counted_scores((right, 100), (5, 100))
        certificate = AUDIT.certify("Does it?", NULL, summary(NUMERIC, [memorization_of(scores)]))
        assert certificate is not None
        (finding,) = certificate.findings
        assert answer == finding.answer
        golden(finding.sentence)
        assert certificate.steps[0].startswith(step)
        assert "run the actual audit (`relation=kept`)." in certificate.steps[-1]
    unanswered = AUDIT.certify("Does it?", NULL, SUMMARY.empty_table())
    assert unanswered is not None
    assert unanswered.findings[0].sentence.startswith(NOTICE_OF_NULL)


def test_not_assessable_states_reason_without_share(golden: Golden) -> None:
    certificate = AUDIT.certify(
        "Does it?", GIVEN, summary(NUMERIC, [memorization_of(counted_scores((5, 100), (5, 100))), evasion_table(96)])
    )
    assert certificate is not None
    (finding,) = certificate.findings
    assert finding.answer == "not assessable"
    assert finding.line is None
    golden(finding.sentence, "finding.sentence")
    golden(certificate.steps[0], "made.steps[0]")
