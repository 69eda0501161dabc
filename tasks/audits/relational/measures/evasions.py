"""Do returned answers answer the questions on corrupted contexts, or evade them?

A system that returns nothing, a refusal or "42" for every corrupted context shows no memory. No list of refusals is
needed to notice it. For the answers to corrupted contexts of each part, the table counts

    other kind      answers that are not of the kind of the reference answers (`answer_kind`): empty, without a number
                    if these have one, or with more words around it than these have
    one text        the share of the commonest remaining answer, less its share of the reference answers
    ten texts       the same for the ten commonest
    right answers   whether fewer of the answers of the kind are right than the best constant would give:
                    P[B <= right], B ~ Binomial(answers of the kind, c)

where c is the success of a constant that is chosen on one part and counted on the other: the commonest reference answer
of the first. An innocent reader that guesses is right at least as often as the best constant. Answers of another kind
are left out of the test, because they are counted by themselves: a reader that guesses a number for one question in
four, and is silent otherwise, guesses no worse for it. The table contains no answer text.

Of readers that are trained here the commonest answer alone is counted, empty answers among them: a network whose output
is constant shows no memory either.
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
WORDS_QUANTILE = 0.95  # of the reference answers with a number: the words around it that their kind allows
FEW = 10  # texts among which an owner may choose
PARTS = ("train", "validation")
UNANSWERED = "unanswered, sent"
OTHER_KIND = "not of the kind of the reference answers"
ONE_TEXT = "commonest answer, above its share of reference answers"
FEW_TEXTS = f"{FEW} commonest answers, above their share of reference answers"
RIGHT = "right answers beside the best constant"

# One row for each part: its answers to corrupted contexts.
EVASIONS = pa.schema(
    [
        ("split", pa.string()),  # train or validation
        ("questions", pa.int64()),
        ("unanswered", pa.int64()),
        ("other_kind", pa.int64()),  # the unanswered among them; a right answer is of the kind
        ("one_text", pa.float64()),  # excess share of the commonest answer
        ("few_texts", pa.float64()),  # the same of the FEW commonest together
        ("right", pa.int64()),  # by exact match with the first gold answer
        ("constant", pa.float64()),  # c; the share that the best constant would have right
        ("p_value", pa.float64()),  # of so few right answers
    ]
)


@dataclass(frozen=True)
class Comparison:
    """The questions that were answered."""

    data: Dataset


@task(version=3, name="relational.evasions")
def evasions(config: Comparison, inputs: Inputs) -> pa.Table:
    """Count the evading answers to corrupted contexts in each part (EVASIONS), from answers (ANSWERS)."""
    questions = load_questions(config.data)
    answers = inputs[0].filter(pc.field("corrupted"))
    said = {}
    for split in PARTS:
        rows = answers.filter(pc.field("split") == split).to_pylist()
        said[split] = [(questions.by_id[each["id"]], tuple(each["answer"])) for each in rows]
    golds = {split: [question.golds[0] for question, _ in pairs] for split, pairs in said.items()}
    is_of_kind = answer_kind([gold for part in golds.values() for gold in part])
    rate = constant_success(*(_gold_keys(questions.scorer, golds[split]) for split in PARTS))
    rows = [evasion_row(split, said[split], questions.scorer, is_of_kind, rate) for split in PARTS]
    return pa.Table.from_pylist(rows, EVASIONS)


def _gold_keys(scorer: Scorer, golds: Sequence[Answer]) -> list[Hashable]:
    return [match_key(scorer, gold) for gold in golds]


def answer_kind(golds: Sequence[Answer]) -> Callable[[Answer, Question], bool]:
    """Whether an answer to a question is of the kind of these reference answers.

    If the question's reference answer has a digit, the answer needs one, and at most the number of words that the
    reference answers with a digit have at WORDS_QUANTILE. For other questions any text is of their kind.
    """
    counts = [_count_words(gold) for gold in golds if _has_digit(gold)]
    most = float(np.quantile(counts, WORDS_QUANTILE, method="higher")) if counts else 0.0

    def is_of_kind(spans: Answer, question: Question) -> bool:
        if not is_answered(spans):
            return False
        return not _has_digit(question.golds[0]) or (_has_digit(spans) and _count_words(spans) <= most)

    return is_of_kind


def _has_digit(spans: Answer) -> bool:
    return any(DIGITS.search(span) for span in spans)


def _count_words(spans: Answer) -> int:
    return sum(len(WORD.findall(span)) for span in spans)


def is_answered(spans: Answer) -> bool:
    return any(span.strip() for span in spans)


def constant_success(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """The share of both parts that is right by a constant which is chosen on the other part each time."""
    right = 0
    for chosen_on, counted_on in ((first, second), (second, first)):
        if chosen_on:
            counts = Counter(chosen_on)
            best = max(counts, key=lambda key: (counts[key], repr(key)))
            right += Counter(counted_on)[best]
    return right / max(1, len(first) + len(second))


def evasion_row(
    split: str,
    said: Sequence[tuple[Question, Answer]],
    scorer: Scorer,
    is_of_kind: Callable[[Answer, Question], bool],
    rate: float,
) -> dict[str, Any]:
    """The row of one part."""
    keys: Counter[Hashable] = Counter()  # of the answers of the kind
    right = 0
    for question, spans in said:
        key = match_key(scorer, spans)
        is_right = key == match_key(scorer, question.golds[0])
        right += is_right
        if is_right or is_of_kind(spans, question):
            keys[key] += 1
    golds = Counter(_gold_keys(scorer, [question.golds[0] for question, _ in said]))
    return {
        "split": split,
        "questions": len(said),
        "unanswered": sum(not is_answered(spans) for _, spans in said),
        "other_kind": len(said) - keys.total(),
        "one_text": _excess_share(keys, golds, 1, len(said)),
        "few_texts": _excess_share(keys, golds, FEW, len(said)),
        "right": right,
        "constant": rate,
        "p_value": few_right_p_value(right, keys.total(), rate),
    }


def _excess_share(keys: Counter[Hashable], golds: Counter[Hashable], texts: int, questions: int) -> float:
    """The share of the commonest `texts` among the answers, less their share of the reference answers."""
    commonest = [key for key, _ in keys.most_common(texts)]
    excess = sum(keys[key] - golds[key] for key in commonest)
    return excess / questions if questions else 0.0


def few_right_p_value(right: int, answers: int, rate: float) -> float:
    """P[B <= right], B ~ Binomial(answers, rate)."""
    from scipy import special  # which planning does without

    return float(special.bdtr(right, answers, rate)) if answers else 1.0


# One row for each replicate and part: the commonest of its answers to corrupted contexts after the last epoch.
COMMONEST = pa.schema(
    [
        ("replicate", pa.int32()),
        ("split", pa.string()),  # train or validation
        ("questions", pa.int64()),
        ("one_text", pa.float64()),  # excess share of the commonest answer
    ]
)


@dataclass(frozen=True)
class Replicates:
    """The questions that were answered, and whose answers each table has."""

    data: Dataset
    replicates: tuple[int, ...]


@task(version=1, name="relational.commonest_answers")
def commonest_answers(config: Replicates, inputs: Inputs) -> pa.Table:
    """The share of the commonest answer by readers that were trained here (COMMONEST), from answers (ANSWERS)."""
    questions = load_questions(config.data)
    rows = []
    for replicate, answers in zip(config.replicates, inputs, strict=True):
        last = answers.filter(pc.field("corrupted") & (pc.field("epoch") == pc.max(answers["epoch"])))
        for split in PARTS:
            said = last.filter(pc.field("split") == split).to_pylist()
            keys = Counter(match_key(questions.scorer, tuple(each["answer"])) for each in said)
            golds = Counter(_gold_keys(questions.scorer, [questions.by_id[each["id"]].golds[0] for each in said]))
            share = _excess_share(keys, golds, 1, len(said))
            rows.append({"replicate": replicate, "split": split, "questions": len(said), "one_text": share})
    return pa.Table.from_pylist(rows, COMMONEST)


def _plan_commonest(config: Relational, trainings: Trainings) -> Job:  # noqa: ARG001 - what is asked stands there
    ends = [answers for answers in trainings.answers if answers.is_last]
    replicates = Replicates(trainings.question.data, tuple(answers.replicate for answers in ends))
    return Job(commonest_answers, replicates, tuple(answers.job for answers in ends))


def _commonest_rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """The largest share of any replicate, by part."""
    found = tables.rows(COMMONEST)
    for split in PARTS:
        of_split = [each for each in found if each["split"] == split and each["questions"]]
        if of_split:
            largest = max(of_split, key=lambda each: float(each["one_text"]))
            share = alone(largest["one_text"], largest["questions"])
            yield row(ONE_TEXT, {"split": split, "contexts": "corrupted"}, share, "question")


def plan(config: Relational, trainings: Trainings) -> Job:  # noqa: ARG001 - what is asked stands in the trainings
    jobs = tuple(answers.job for answers in trainings.answers)
    return Job(evasions, Comparison(trainings.question.data), jobs)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for each in tables.rows(EVASIONS):
        setting: Mapping[str, str] = {"split": each["split"], "contexts": "corrupted"}
        questions = each["questions"]
        yield row(OTHER_KIND, setting, proportion(each["other_kind"], questions), "question")
        yield row(UNANSWERED, setting, proportion(each["unanswered"], questions), "question")
        yield row(ONE_TEXT, setting, alone(each["one_text"], questions), "question")
        yield row(FEW_TEXTS, setting, alone(each["few_texts"], questions), "question")
        success = proportion(each["right"], questions - each["other_kind"])
        yield row(RIGHT, setting, success, "question", each["constant"], each["p_value"])


MEASURE = Measure("evasions", EVASIONS, plan, rows)
COMMONEST_MEASURE = Measure("commonest_answers", COMMONEST, _plan_commonest, _commonest_rows)
