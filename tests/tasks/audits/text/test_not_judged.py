"""Runs that are not assessable: both answers give the reason and no number."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.text.answer import certificate, verdict
from tasks.audits.text.blind_control import BLIND
from tasks.audits.text.config import Text
from tasks.audits.text.documents.insertions import SHOWN
from tasks.audits.text.documents.ranks import FOUND as DOCUMENTS_FOUND
from tasks.audits.text.documents.ranks import WON
from tasks.audits.text.given.comparison import AREA
from tasks.audits.text.given.returned import DIFFERING
from tasks.audits.text.given.returned import TIED as TABLE_TIED
from tasks.audits.text.question import TextComparison
from tasks.audits.text.secrets.ranks import BEATEN, CONTROL, FOUND
from tasks.contract.certificate import NO_CONCLUSION_YET, STEPS, steps_of_null
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, Row, alone, row
from tasks.contract.ties import TIED, tied_row
from tasks.contract.verdict import NOT_ASSESSABLE
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.worker.files import File
from tests.tasks.audits.text.made_up import configure

FACTS = pin(Dataset("facts"))
TABLE = File("log_p.csv", digest="0" * 64)
TIES = ("30 of 100",) * 2
TWICE = ("the table has two numbers for 20 of 100 texts", "he table has two numbers for 20 of 100 texts")
UNEVEN = ("not uniformly random", "not random")
BLIND_WORDS = ("a bag of words", "words")


def half(metric: str, p_value: float | None = 0.5, **setting: Any) -> Row:
    return row(metric, setting, Estimate(0.5, 0.49, 0.51, 40), "text", 0.5, p_value)


RANKS = half(FOUND), half(BEATEN)
DOCUMENTS = half(DOCUMENTS_FOUND), half(WON)
INSERTIONS = half(SHOWN), half(BLIND), half(DOCUMENTS_FOUND), half(WON, repetitions=4)
AREAS = half(AREA, score="loss"), half(AREA, score=BLIND)
BY_TRAINED = half(BLIND, 0.001), half(AREA, 0.001, score=BLIND)
TIED_SCORES = tied_row(0.3, 40, "text")
TIED_TABLE = row(TABLE_TIED, {}, alone(0.3, 40), "text", 0.0)
TWO_ANSWERS = row(DIFFERING, {}, alone(0.2, 10), "text", 0.0)


def comparison_config(**fields: Any) -> Text:
    return configure(question="comparison", data=FACTS, comparison_texts=pin(Dataset("tickets")), **fields)


INSERTION_CONFIG = configure(question="insertions", data=Dataset("records:own.jsonl"), base="tiny-gpt#32x1")


@pytest.mark.parametrize(
    ("config", "rows", "metric", "reasons"),
    [
        (Text(), (*RANKS, TIED_SCORES), TIED, TIES),
        (configure(question="planted"), (*RANKS, TIED_SCORES), TIED, TIES),
        (configure(question="planted", outputs=TABLE), (*RANKS, TWO_ANSWERS), DIFFERING, TWICE),
        (configure(identifiers=("uuid4",)), (*RANKS, half(CONTROL), TIED_SCORES), TIED, TIES),
        (configure(identifiers=("uuid4",)), (*RANKS, half(CONTROL, 0.001)), CONTROL, UNEVEN),
        (configure(identifiers=("uuid4",), outputs=TABLE), (*RANKS, half(CONTROL), TWO_ANSWERS), DIFFERING, TWICE),
        (configure(question="documents"), (*DOCUMENTS, TIED_SCORES), TIED, TIES),
        (INSERTION_CONFIG, (*INSERTIONS, TIED_SCORES), TIED, TIES),
        (INSERTION_CONFIG, (INSERTIONS[0], BY_TRAINED[0], *INSERTIONS[2:]), BLIND, BLIND_WORDS),
        (comparison_config(outputs=TABLE), (*AREAS, TIED_TABLE), TABLE_TIED, TIES),
        (comparison_config(outputs=TABLE), (*AREAS, TWO_ANSWERS), DIFFERING, TWICE),
        (comparison_config(), (AREAS[0], BY_TRAINED[1]), AREA, BLIND_WORDS),
    ],
)
def test_unjudged_run_gives_its_reason_in_both_answers(
    config: Text, rows: tuple[Row, ...], metric: str, reasons: tuple[str, str]
) -> None:
    reason, shown_reason = reasons
    is_comparison = isinstance(config.question, TextComparison) and not config.outputs
    first_step = NO_CONCLUSION_YET if is_comparison else STEPS["open"][0]
    summary = pa.Table.from_pylist(list(rows), SUMMARY)
    answer = verdict(config, summary)
    assert answer.answer == NOT_ASSESSABLE
    assert reason in answer.sentence
    assert metric in [name for name, _ in answer.rows]
    page = certificate(config, summary, answer)
    (finding,) = page.findings
    assert shown_reason in finding.sentence
    assert "p =" not in finding.sentence
    assert finding.line is None
    assert page.steps[0] == first_step


def test_untested_documents_are_untested_in_both_answers() -> None:
    wide = half(WON) | {"low": None, "high": None}
    summary = pa.Table.from_pylist([half(DOCUMENTS_FOUND, 0.001), wide], SUMMARY)
    config = configure(question="documents")
    answer = verdict(config, summary)
    assert answer.sentence == "Undecided: no document was tested."
    assert [finding.sentence for finding in certificate(config, summary, answer).findings] == [answer.sentence]


@pytest.mark.parametrize("fields", [{"data": FACTS}, {"is_null": True}])
def test_drawn_insertions_have_the_steps_of_a_null(fields: dict[str, Any]) -> None:
    config = configure(INSERTION_CONFIG, **fields)
    summary = pa.Table.from_pylist([*INSERTIONS], SUMMARY)
    answer = verdict(config, summary)
    steps = certificate(config, summary, answer).steps
    assert "This is a control run" in answer.sentence
    assert steps == steps_of_null(answer.answer, "is_null=false data=records:FILE")
