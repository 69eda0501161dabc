"""Do returned answers answer the questions on corrupted contexts, or evade them?

A system that returns nothing, a refusal or "42" for every corrupted context shows no memory. Such evasion can be
detected without a list of refusals. For the answers to the corrupted contexts of each part, the table reports

    other kind       answers that are not of the kind of the reference answers (`answer_kind`): empty, without a number
                     if the reference answer has one, or with more words around the number than reference answers have
    one text         share of the most common remaining answer, minus its share of the reference answers
    ten texts        the same for the ten most common answers
    correct answers  whether fewer answers of the right kind are correct than the best constant answer would give:
                     P[B <= right], B ~ Binomial(answers of the right kind, c)

where c is the accuracy of a constant answer that is chosen on one part and evaluated on the other: the most common
reference answer of the first part. An innocent reader that guesses is correct at least as often as the best constant.
Answers of another kind are left out of this test, because they are counted separately: a reader that guesses a number
for one question in four and is silent otherwise is not penalised for its silence. The table contains no answer text.

For readers trained by the audit, only the most common answer is counted, including the empty one, because a network
with constant output shows no memory either.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.audits.relational.config import Relational
from tasks.audits.relational.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Row, alone, row
from tasks.datasets.catalog import load_questions
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Answer, Question, Scorer
from tasks.numerics.statistics import proportion
from tasks.question_answering.question_sets import DIGITS
from tasks.question_answering.scoring import match_key

WORD = re.compile(r"[^\W\d_]+")
WORDS_QUANTILE = 0.95  # of the word counts of reference answers with a number; longer answers are of another kind
FEW = 10  # number of texts that an owner may choose among
PARTS = ("train", "validation")
UNANSWERED = "unanswered, sent"
OTHER_KIND = "not of the kind of the reference answers"
ONE_TEXT = "commonest answer, above its share of reference answers"
FEW_TEXTS = f"{FEW} commonest answers, above their share of reference answers"
RIGHT = "right answers beside the best constant"

# One row per part, about its answers to corrupted contexts.
EVASIONS = pa.schema(
    [
        ("split", pa.string()),  # train or validation
        ("questions", pa.int64()),
        ("unanswered", pa.int64()),
        ("other_kind", pa.int64()),  # including the unanswered ones; a correct answer is never of another kind
        ("one_text", pa.float64()),  # excess share of the most common answer
        ("few_texts", pa.float64()),  # excess share of the FEW most common answers together
        ("right", pa.int64()),  # by exact match with the first gold answer
        ("constant", pa.float64()),  # c, the accuracy of the best constant answer
        ("p_value", pa.float64()),  # probability of so few correct answers
    ]
)


@dataclass(frozen=True)
class Comparison:
    """The data set that the questions come from."""

    data: Dataset


@task(version=3, name="relational.evasions")
def evasions(config: Comparison, inputs: Inputs) -> pa.Table:
    """Count evasive answers to corrupted contexts in each part (EVASIONS), from answers (ANSWERS)."""
    questions = load_questions(config.data)
    answers = inputs[0].filter(pc.field("corrupted"))
    answers_by_part = {}
    for split in PARTS:
        rows = answers.filter(pc.field("split") == split).to_pylist()
        answers_by_part[split] = [(questions.by_id[answer["id"]], tuple(answer["answer"])) for answer in rows]
    golds = {split: [question.golds[0] for question, _ in pairs] for split, pairs in answers_by_part.items()}
    is_of_kind = answer_kind([gold for part in golds.values() for gold in part])
    rate = constant_success(*(_gold_keys(questions.scorer, golds[split]) for split in PARTS))
    rows = [evasion_row(split, answers_by_part[split], questions.scorer, is_of_kind, rate) for split in PARTS]
    return pa.Table.from_pylist(rows, EVASIONS)


def _gold_keys(scorer: Scorer, golds: Sequence[Answer]) -> list[Hashable]:
    return [match_key(scorer, gold) for gold in golds]


def answer_kind(golds: Sequence[Answer]) -> Callable[[Answer, Question], bool]:
    """Return a function that decides whether an answer is of the same kind as the reference answers.

    If the reference answer of a question contains a digit, the answer must contain a digit and must not have more words
    than the WORDS_QUANTILE quantile of the reference answers with a digit. For other questions, any text is accepted.
    """
    counts = [_count_words(gold) for gold in golds if _has_digit(gold)]
    max_words = 0.0
    if counts:
        max_words = float(np.quantile(counts, WORDS_QUANTILE, method="higher"))

    def is_of_kind(spans: Answer, question: Question) -> bool:
        if not is_answered(spans):
            return False
        return not _has_digit(question.golds[0]) or (_has_digit(spans) and _count_words(spans) <= max_words)

    return is_of_kind


def _has_digit(spans: Answer) -> bool:
    return any(DIGITS.search(span) for span in spans)


def _count_words(spans: Answer) -> int:
    return sum(len(WORD.findall(span)) for span in spans)


def is_answered(spans: Answer) -> bool:
    return any(span.strip() for span in spans)


def constant_success(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Return the accuracy on both parts of a constant answer, chosen for each part on the other part."""
    right = 0
    for chosen_on, counted_on in ((first, second), (second, first)):
        if chosen_on:
            counts = Counter(chosen_on)
            best = max(counts, key=lambda key: (counts[key], repr(key)))
            right += Counter(counted_on)[best]
    return right / max(1, len(first) + len(second))


def evasion_row(
    split: str,
    answered: Sequence[tuple[Question, Answer]],
    scorer: Scorer,
    is_of_kind: Callable[[Answer, Question], bool],
    rate: float,
) -> dict[str, Any]:
    """Return the row of one part."""
    keys: Counter[Hashable] = Counter()  # counts of the answers of the right kind
    right = 0
    for question, spans in answered:
        key = match_key(scorer, spans)
        is_right = key == match_key(scorer, question.golds[0])
        right += is_right
        if is_right or is_of_kind(spans, question):
            keys[key] += 1
    golds = Counter(_gold_keys(scorer, [question.golds[0] for question, _ in answered]))
    return {
        "split": split,
        "questions": len(answered),
        "unanswered": sum(not is_answered(spans) for _, spans in answered),
        "other_kind": len(answered) - keys.total(),
        "one_text": _excess_share(keys, golds, 1, len(answered)),
        "few_texts": _excess_share(keys, golds, FEW, len(answered)),
        "right": right,
        "constant": rate,
        "p_value": few_right_p_value(right, keys.total(), rate),
    }


def _excess_share(keys: Counter[Hashable], golds: Counter[Hashable], texts: int, questions: int) -> float:
    """Return the share of the `texts` most common answers, minus their share of the reference answers."""
    commonest = [key for key, _ in keys.most_common(texts)]
    excess = sum(keys[key] - golds[key] for key in commonest)
    return excess / questions if questions else 0.0


def few_right_p_value(right: int, answers: int, rate: float) -> float:
    """Return P[B <= right] for B ~ Binomial(answers, rate)."""
    from scipy import special  # not needed for planning

    return float(special.bdtr(right, answers, rate)) if answers else 1.0


# One row per replicate and part: the most common answer to corrupted contexts after the last epoch.
COMMONEST = pa.schema(
    [
        ("replicate", pa.int32()),
        ("split", pa.string()),  # train or validation
        ("questions", pa.int64()),
        ("one_text", pa.float64()),  # excess share of the most common answer
    ]
)


@dataclass(frozen=True)
class Replicates:
    """The data set of the questions, and the replicate number of each answer table."""

    data: Dataset
    replicates: tuple[int, ...]


@task(version=1, name="relational.commonest_answers")
def commonest_answers(config: Replicates, inputs: Inputs) -> pa.Table:
    """Measure the share of the most common answer of readers trained by the audit (COMMONEST).

    Reads their answers (ANSWERS).
    """
    questions = load_questions(config.data)
    rows = []
    for replicate, answers in zip(config.replicates, inputs, strict=True):
        last = answers.filter(pc.field("corrupted") & (pc.field("epoch") == pc.max(answers["epoch"])))
        for split in PARTS:
            part_answers = last.filter(pc.field("split") == split).to_pylist()
            keys = Counter(match_key(questions.scorer, tuple(answer["answer"])) for answer in part_answers)
            golds = Counter(
                _gold_keys(questions.scorer, [questions.by_id[answer["id"]].golds[0] for answer in part_answers])
            )
            share = _excess_share(keys, golds, 1, len(part_answers))
            rows.append({"replicate": replicate, "split": split, "questions": len(part_answers), "one_text": share})
    return pa.Table.from_pylist(rows, COMMONEST)


def _plan_commonest(config: Relational, trainings: Trainings) -> Job:  # noqa: ARG001
    ends = [answers for answers in trainings.answers if answers.is_last]
    replicates = Replicates(trainings.question.data, tuple(answers.replicate for answers in ends))
    return Job(commonest_answers, replicates, tuple(answers.job for answers in ends))


def _commonest_rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Yield the largest share over replicates, by part."""
    table_rows = tables.rows(COMMONEST)
    for split in PARTS:
        of_split = [table_row for table_row in table_rows if table_row["split"] == split and table_row["questions"]]
        if of_split:
            largest = max(of_split, key=lambda table_row: float(table_row["one_text"]))
            share = alone(largest["one_text"], largest["questions"])
            yield row(ONE_TEXT, {"split": split, "contexts": "corrupted"}, share, "question")


def plan(config: Relational, trainings: Trainings) -> Job:  # noqa: ARG001
    jobs = tuple(answers.job for answers in trainings.answers)
    return Job(evasions, Comparison(trainings.question.data), jobs)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for table_row in tables.rows(EVASIONS):
        setting: Mapping[str, str] = {"split": table_row["split"], "contexts": "corrupted"}
        questions = table_row["questions"]
        yield row(OTHER_KIND, setting, proportion(table_row["other_kind"], questions), "question")
        yield row(UNANSWERED, setting, proportion(table_row["unanswered"], questions), "question")
        yield row(ONE_TEXT, setting, alone(table_row["one_text"], questions), "question")
        yield row(FEW_TEXTS, setting, alone(table_row["few_texts"], questions), "question")
        success = proportion(table_row["right"], questions - table_row["other_kind"])
        yield row(RIGHT, setting, success, "question", table_row["constant"], table_row["p_value"])


MEASURE = Measure("evasions", EVASIONS, plan, rows)
COMMONEST_MEASURE = Measure("commonest_answers", COMMONEST, _plan_commonest, _commonest_rows)
