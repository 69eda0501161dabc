"""Is a question answered rightly? Exact match and F1 of every answer, by the scorer's rules.

On the training part a question has one gold answer, on the validation part of SQuAD and DROP several, of which the best
counts: that raises the published scores of held-out questions and lowers the published m. Every answer is therefore
scored twice: against all gold answers, as published, and against the first alone, as fair to both parts.

Rajpurkar et al. 2016 and Dua et al. 2019, their official scorers; the two ways are of Bombari et al. 2022, section 6.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tasks.audits.relational.config import Relational
from tasks.audits.relational.trainings import Trainings
from tasks.datasets.catalog import load_questions
from tasks.datasets.dataset import Dataset
from tasks.job import Inputs, Job, task
from tasks.measure import Measure
from tasks.question_answering.asked import is_numeric
from tasks.question_answering.question import Question, Scorer
from tasks.question_answering.scoring import scored

# One row for each answer; scores are in [0, 1].
QUESTION_SCORES = pa.schema(
    [
        ("replicate", pa.int32()),
        ("epoch", pa.int64()),  # null where the training is not known
        ("split", pa.string()),
        ("corrupted", pa.bool_()),
        ("id", pa.string()),
        ("context", pa.string()),  # its id: questions of one context are not independent
        ("numeric", pa.bool_()),  # whether the first gold answer has a digit
        ("answered", pa.bool_()),  # whether the answer is more than nothing
        ("exact_match", pa.float64()),  # against the first gold answer
        ("f1", pa.float64()),
        ("exact_match_all", pa.float64()),  # against the best of all gold answers, as published
        ("f1_all", pa.float64()),
        ("train_loss", pa.float64()),  # nats per token in that epoch of training
    ]
)


@dataclass(frozen=True)
class Scoring:
    """Which model the answers are of, and the questions that they answer."""

    data: Dataset
    replicate: int


@task(version=1, name="relational.score")
def score(config: Scoring, inputs: Inputs) -> pa.Table:
    """The scores (QUESTION_SCORES) of one table of answers."""
    questions = load_questions(config.data)
    rows = [
        of_answer(config.replicate, answer, questions.by_id[answer["id"]], questions.scorer)
        for answer in inputs[0].to_pylist()
    ]
    return pa.Table.from_pylist(rows, QUESTION_SCORES)


def of_answer(replicate: int, answer: dict[str, Any], question: Question, scorer: Scorer) -> dict[str, Any]:
    """The row of one answer."""
    spans = tuple(answer["answer"])
    fair = scored(scorer, spans, question.golds[:1])
    published = scored(scorer, spans, question.golds)
    return {
        "replicate": replicate,
        "epoch": answer["epoch"],
        "split": answer["split"],
        "corrupted": answer["corrupted"],
        "id": question.id,
        "context": question.context_id,
        "numeric": is_numeric(question),
        "answered": any(span.strip() for span in spans),
        "exact_match": fair[0],
        "f1": fair[1],
        "exact_match_all": published[0],
        "f1_all": published[1],
        "train_loss": answer["train_loss"],
    }


def plan(config: Relational, trainings: Trainings) -> tuple[Job, ...]:
    """The scores of every model, link by link: what the other measures of answers are made of."""
    return tuple(Job(score, Scoring(config.data, asked.replicate), (asked.job,)) for asked in trainings.answers)


MEASURE = Measure("scores", QUESTION_SCORES, plan)
