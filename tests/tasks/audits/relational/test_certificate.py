"""What a person is told of a question answering model."""

from __future__ import annotations

from dataclasses import replace

from tasks.audits.relational import AUDIT
from tasks.audits.relational.answer import ERROR
from tasks.audits.relational.answer import NULL as TOLD
from tasks.audits.relational.presets import LINEAR, QUICKSTART
from tasks.audits.relational.summary import summary
from tasks.schemas import SUMMARY
from tests.tasks.audits.relational.made_up import NUMERIC, counted, measured
from tests.tasks.audits.relational.test_answer import GIVEN, NULL, silent


def test_the_share_from_memory_is_told_with_its_interval() -> None:
    scores = counted((30, 100), (5, 100))
    made = AUDIT.certify("Does it?", QUICKSTART, summary(NUMERIC, [measured(scores)]))
    assert made is not None
    (finding,) = made.findings
    assert "memorised" == finding.answer
    assert "still gives is 25 percentage points higher for texts that it was trained on than" in finding.sentence
    assert finding.line is not None
    assert [0.0, QUICKSTART.negligible] == [each.value for each in finding.line.boundaries]
    assert made.error == ERROR


def test_where_no_model_is_asked_there_is_no_number() -> None:
    made = AUDIT.certify("Does it?", LINEAR, SUMMARY.empty_table())
    assert made is not None
    (finding,) = made.findings
    assert ("undecided", None) == (finding.answer, finding.line)


def test_a_null_is_told_as_one_and_no_training_texts_are_to_be_treated() -> None:
    for right, answer, step in ((30, "memorised", "Nothing is disclosed by this"), (5, "undecided", "Keep this page")):
        scores = counted((right, 100), (5, 100))
        made = AUDIT.certify("Does it?", NULL, summary(NUMERIC, [measured(scores)]))
        assert made is not None
        (finding,) = made.findings
        assert answer == finding.answer
        assert finding.sentence.startswith(f"{TOLD}With the answers taken out")
        assert made.steps[0].startswith(step)
        assert "run the audit itself: relation=kept." in made.steps[-1]
    unanswered = AUDIT.certify("Does it?", NULL, SUMMARY.empty_table())
    assert unanswered is not None
    assert unanswered.findings[0].sentence.startswith(TOLD)


def test_of_given_answers_nothing_was_redrawn() -> None:
    found = summary(NUMERIC, [measured(counted((30, 100), (5, 100)))])
    given = replace(GIVEN, relation="redrawn")
    made, said = AUDIT.certify("Does it?", given, found), AUDIT.answer(given, found)
    assert made is not None
    assert said is not None
    assert not made.findings[0].sentence.startswith(TOLD)
    assert "null" not in said.sentence
    assert made.steps[0].startswith("Treat the answers")


def test_who_is_not_judged_is_told_why_and_is_shown_no_share() -> None:
    made = AUDIT.certify("Does it?", GIVEN, summary(NUMERIC, [measured(silent(0.4, right=0.3))]))
    assert made is not None
    (finding,) = made.findings
    assert ("not judged", None) == (finding.answer, finding.line)
    assert "40 % more of the held-out questions go unanswered" in finding.sentence
    assert (
        "Ask for a system that answers every question, also where the text does not hold the answer.",
    ) == made.steps
