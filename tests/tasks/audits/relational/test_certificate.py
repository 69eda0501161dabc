"""What a person is told of a question answering model."""

from __future__ import annotations

from tasks.audits.relational import AUDIT
from tasks.audits.relational.presets import LINEAR, QUICKSTART
from tasks.audits.relational.summary import summary
from tasks.audits.relational.verdict import ERROR
from tasks.schemas import SUMMARY
from tests.tasks.audits.relational.made_up import NUMERIC, counted, measured


def test_the_share_from_memory_is_told_with_its_interval() -> None:
    scores = counted((30, 100), (5, 100))
    made = AUDIT.certify("Does it?", QUICKSTART, summary(NUMERIC, [measured(scores)]))
    assert made is not None
    (finding,) = made.findings
    assert "memorised" == finding.answer
    assert "the model still gives 25 of 100 of them more often of texts that it was trained on" in finding.sentence
    assert finding.line is not None
    assert [0.0, QUICKSTART.negligible] == [each.value for each in finding.line.boundaries]
    assert f"{ERROR}." == made.error


def test_where_no_model_is_asked_there_is_no_number() -> None:
    made = AUDIT.certify("Does it?", LINEAR, SUMMARY.empty_table())
    assert made is not None
    (finding,) = made.findings
    assert ("undecided", None) == (finding.answer, finding.line)
