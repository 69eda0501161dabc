"""Were answers altered before they were returned? Counts repeated questions that received two different answers.

A system at temperature 0 gives the same answer to the same question, as judged by exact match. If it gives two
different answers, the file does not hold the answers of one system. A negative result says little, because an owner can
look for identical questions. This measure applies only to blinded questions.
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
DIGITS = 16  # leading hexadecimal digits of the key's SHA-256 that the summary shows

REPEATS = pa.schema(
    [
        ("repeats", pa.int32()),  # number of repeated questions
        ("differing", pa.int32()),  # repeated questions with two answers
        ("key", pa.string()),  # SHA-256 of the key, as stated to the owner
    ]
)


@task(version=1, name="relational.repeats")
def repeats(config: ReadBlindedAnswers, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Count the repeated questions with two different answers (REPEATS). The table has one row."""
    repeated, differing = blinded_questions.count_repeats(config)
    key = Split(blinded_questions.key_table(config.handed)).commitment
    return make_table(REPEATS, repeats=repeated, differing=differing, key=key)


def plan(config: Relational, trainings: Trainings) -> Job | tuple[()]:
    match trainings.question.system:
        case Given(predictions=predictions) as system if predictions is not None:
            blinding = blind_questions(trainings.question, system, config.seed)
            return Job(repeats, ReadBlindedAnswers(predictions, blinding))
    return ()


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for table in tables.rows(REPEATS):
        differ = proportion(table["differing"], table["repeats"])
        yield row(TWICE, {"key": table["key"][:DIGITS]}, differ, "question", 0.0)


MEASURE = Measure("repeats", REPEATS, plan, rows)
