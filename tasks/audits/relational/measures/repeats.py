"""Were answers touched before they were sent? The questions that an owner got twice, and those with two answers.

A system that is asked as it should be, at temperature 0, gives one answer to one question, by the rule of exact match.
Where it has two, the file is not what one system says. What is not found says little, since an owner can look for equal
questions. Only of questions that were handed out blinded.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tasks.audits.relational.config import Given, Relational
from tasks.audits.relational.trainings import Trainings, blind_questions
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, row
from tasks.external import blinded_questions
from tasks.external.blinded_questions import ReadBlindedAnswers
from tasks.external.blinding import Split
from tasks.numerics.statistics import proportion

TWICE = "repeated questions with two answers"
DIGITS = 16  # of the key's SHA-256, in the summary

REPEATS = pa.schema(
    [
        ("repeats", pa.int32()),  # questions that were handed out twice
        ("differing", pa.int32()),  # of these with two answers
        ("key", pa.string()),  # SHA-256 of the key, as the owner was told it
    ]
)


@task(version=1, name="relational.repeats")
def repeats(config: ReadBlindedAnswers, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - reads a file
    """The questions that were answered twice (REPEATS), in one row."""
    asked, differing = blinded_questions.count_repeats(config)
    key = Split(blinded_questions.key_table(config.handed)).commitment
    return make_table(REPEATS, repeats=asked, differing=differing, key=key)


def plan(config: Relational, trainings: Trainings) -> Job | tuple[()]:
    match trainings.question.system:
        case Given(given=predictions) as system if predictions is not None:
            handed = blind_questions(trainings.question, system, config.seed)
            return Job(repeats, ReadBlindedAnswers(predictions, handed))
    return ()


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for table in tables.rows(REPEATS):
        differ = proportion(table["differing"], table["repeats"])
        yield row(TWICE, {"key": table["key"][:DIGITS]}, differ, "question", 0.0)


MEASURE = Measure("repeats", REPEATS, plan, rows)
