"""Which questions are answered correctly, and which hidden answers does the model give?

Scores. Exact match and F1 of every answer, by the rules of the scorer. A training question has one gold answer, but a
held-out question of SQuAD or DROP has several, of which the best match counts. This raises the published scores of
held-out questions and lowers the published m. Every answer is therefore scored twice: against all gold answers, as
published, and against the first one, which treats both parts alike. A model that only knows which answers are common
gives a common answer and is correct as often as this answer occurs. The table therefore also reports, for each answer,
the share of the part's other questions for which it would be correct.

Questions. The table lists every question with its rate of correct answers at the end of training. The answer cannot be
read from a corrupted context; if the model gives it, the answer was known, guessed or memorised. Only the comparison
with held-out questions distinguishes these, so a single question proves nothing. The table contains no texts; the
report shows them on request.

Rajpurkar et al. 2016 and Dua et al. 2019, official scorers; Bombari et al. 2022, section 6.1 and table 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tasks.audits.relational.config import Relational
from tasks.audits.relational.trainings import Trainings
from tasks.contract.job import Inputs, Job, NoSettings, task
from tasks.contract.measure import Measure
from tasks.datasets.catalog import load_questions
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Answer, Question, QuestionSet, Scorer, first_copies
from tasks.question_answering.question_sets import is_numeric
from tasks.question_answering.scoring import match_key, score_answer

# One row per answer; scores are in [0, 1].
QUESTION_SCORES = pa.schema(
    [
        ("replicate", pa.int32()),
        ("epoch", pa.int64()),  # null if the training is unknown
        ("split", pa.string()),
        ("corrupted", pa.bool_()),
        ("id", pa.string()),
        ("context", pa.string()),  # id of the context; questions about one context are not independent
        ("numeric", pa.bool_()),  # whether the first gold answer has a digit
        ("answered", pa.bool_()),  # whether the answer is not empty
        ("exact_match", pa.float64()),  # against the first gold answer
        ("common_match", pa.float64()),  # share of the part's other questions whose first gold answer it matches
        ("f1", pa.float64()),
        ("exact_match_all", pa.float64()),  # against the best of all gold answers, as published
        ("f1_all", pa.float64()),
        ("train_loss", pa.float64()),  # nats per token, in that epoch
    ]
)


@dataclass(frozen=True)
class Scoring:
    """The data set of the questions, and the number of the model that answers them."""

    data: Dataset
    replicate: int


@task(version=2, name="relational.score")
def score(config: Scoring, inputs: Inputs) -> pa.Table:
    """Score one table of answers (QUESTION_SCORES). Exact copies of a question count once."""
    questions = load_questions(config.data)
    answered_ids = set(inputs[0]["id"].to_pylist())
    distinct = set(first_copies([question for id_, question in questions.by_id.items() if id_ in answered_ids]))
    answers = [answer for answer in inputs[0].to_pylist() if answer["id"] in distinct]
    common = {}
    for split in ("train", "validation"):
        common[split] = CommonAnswers(answers, split, questions)
    rows = []
    for answer in answers:
        rows.append(
            _answer_row(
                config.replicate, answer, questions.by_id[answer["id"]], questions.scorer, common[answer["split"]]
            )
        )
    return pa.Table.from_pylist(rows, QUESTION_SCORES)


class CommonAnswers:
    """How often each gold answer occurs in a part."""

    def __init__(self, answers: Iterable[Mapping[str, Any]], split: str, questions: QuestionSet) -> None:
        self.scorer = questions.scorer
        ids = {answer["id"] for answer in answers if answer["split"] == split}
        self.counts = Counter(match_key(self.scorer, questions.by_id[id_].golds[0]) for id_ in ids)
        self.asked = len(ids)

    def match_share(self, spans: Answer, question: Question) -> float:
        """Return the share of the part's other questions whose gold answer matches, or 0 if there are no other
        questions.
        """
        key = match_key(self.scorer, spans)
        other_matches = self.counts[key] - (key == match_key(self.scorer, question.golds[0]))
        return other_matches / (self.asked - 1) if self.asked > 1 else 0.0


def _answer_row(
    replicate: int, answer: Mapping[str, Any], question: Question, scorer: Scorer, common: CommonAnswers
) -> dict[str, Any]:
    spans = tuple(answer["answer"])
    fair = score_answer(scorer, spans, question.golds[:1])
    published = score_answer(scorer, spans, question.golds)
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
        "common_match": common.match_share(spans, question),
        "f1": fair[1],
        "exact_match_all": published[0],
        "f1_all": published[1],
        "train_loss": answer["train_loss"],
    }


def plan_scores(config: Relational, trainings: Trainings) -> tuple[Job, ...]:  # noqa: ARG001
    """Plan the scores of every model and link, which the other measures take as input."""
    data = trainings.question.data
    return tuple(Job(score, Scoring(data, answers.replicate), (answers.job,)) for answers in trainings.answers)


# One row per question, sorted by correct answers on corrupted contexts, most first.
QUESTIONS = pa.schema(
    [
        ("split", pa.string()),
        ("id", pa.string()),
        ("context", pa.string()),
        ("numeric", pa.bool_()),
        ("replicates", pa.int32()),
        ("corrupted_exact_match", pa.float64()),  # share of replicates with a correct answer
        ("corrupted_f1", pa.float64()),  # mean over replicates
        ("whole_exact_match", pa.float64()),
        ("whole_f1", pa.float64()),
    ]
)


@task(version=1, name="relational.questions", gathers=True)
def questions(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Average the scores of each question after the last epoch (QUESTIONS)."""
    scores = pa.concat_tables(inputs)
    last = pc.max(scores["epoch"]).as_py()
    if last is not None:
        scores = scores.filter(pc.field("epoch") == last)
    names = ["split", "id", "context", "numeric"]
    means: dict[tuple[Any, ...], dict[str, Any]] = {}
    for corrupted, kind in ((False, "whole"), (True, "corrupted")):
        of_kind = scores.filter(pc.field("corrupted") == corrupted)
        grouped = of_kind.group_by(names).aggregate([("exact_match", "mean"), ("f1", "mean"), ("f1", "count")])
        for group in grouped.to_pylist():
            question_row = means.setdefault(tuple(group[name] for name in names), {name: group[name] for name in names})
            question_row |= {f"{kind}_exact_match": group["exact_match_mean"], f"{kind}_f1": group["f1_mean"]}
            question_row["replicates"] = max(question_row.get("replicates", 0), group["f1_count"])
    rows = sorted(means.values(), key=_sort_key)
    return pa.Table.from_pylist(rows, QUESTIONS)


def _sort_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Sort training questions first, then by decreasing score on corrupted contexts."""
    rightly = (row.get("corrupted_exact_match") or 0.0, row.get("corrupted_f1") or 0.0)
    return row["split"], -rightly[0], -rightly[1], row["id"]


def _plan_questions(config: Relational, trainings: Trainings) -> Job:
    scores = plan_scores(config, trainings)
    ends = []
    for job, answers in zip(scores, trainings.answers, strict=True):
        if answers.is_last:
            ends.append(job)
    return Job(questions, NoSettings(), tuple(ends))


SCORES_MEASURE = Measure("scores", QUESTION_SCORES, plan_scores)
QUESTIONS_MEASURE = Measure("questions", QUESTIONS, _plan_questions)
