"""Do answers that were sent stop where the answer cannot be read? Silence, refusals and one text for everything.

Whoever says nothing, "unknown" or "42" of every corrupted context shows no memory, whatever is known. Of each part of
the data three shares of its questions are compared between corrupted contexts and whole ones:

    unanswered   the answer is empty
    refused      it says that there is none ("unknown", "not stated"): words of refusal and no digit
    commonest    it is the answer that is commonest on corrupted contexts, by the rule of exact match

A model that reads finds other words in another context, and one that gives a single answer to everything gives it on
whole contexts, too: neither has a larger share on corrupted contexts for it. What was answered stays out of the table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tasks.audits.relational.config import Relational
from tasks.audits.relational.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Row, row
from tasks.datasets.catalog import load_questions
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Answer
from tasks.numerics.statistics import proportion
from tasks.question_answering.scoring import match_key

REFUSAL = re.compile(
    r"\b(unknown|unanswerable|unavailable|unclear|unspecified|unstated|undisclosed|unable|insufficient|missing|"
    r"redacted|impossible|none|nothing|no|not|cannot|n/?a|nan|null|can['’]?t|(?:is|are|do|does|did)n['’]?t)\b",
    re.IGNORECASE,
)
DIGIT = re.compile(r"\d")
KINDS = ("unanswered", "refused", "commonest answer")

# One row for each part, kind of context and kind of answer.
EVASIONS = pa.schema(
    [
        ("kind", pa.string()),  # one of KINDS
        ("split", pa.string()),  # train or validation
        ("contexts", pa.string()),  # whole or corrupted
        ("answers", pa.int64()),  # of this kind
        ("questions", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Comparison:
    """The questions that were answered."""

    data: Dataset


@task(version=1, name="relational.evasions")
def evasions(config: Comparison, inputs: Inputs) -> pa.Table:
    """How many answers (ANSWERS) of either part are of each kind (EVASIONS)."""
    scorer = load_questions(config.data).scorer
    rows = []
    for split in ("train", "validation"):
        asked = inputs[0].filter(pc.field("split") == split)
        by_contexts = {
            name: [tuple(spans) for spans in asked.filter(pc.field("corrupted") == corrupted)["answer"].to_pylist()]
            for name, corrupted in (("whole", False), ("corrupted", True))
        }
        keys = {
            name: Counter(match_key(scorer, spans) for spans in answers if is_answered(spans))
            for name, answers in by_contexts.items()
        }
        commonest = max(keys["corrupted"], key=keys["corrupted"].__getitem__, default=None)
        for contexts, answers in by_contexts.items():
            unanswered = sum(not is_answered(spans) for spans in answers)
            counts = (unanswered, sum(map(is_refusal, answers)), keys[contexts][commonest])
            rows += [(kind, split, contexts, count, len(answers)) for kind, count in zip(KINDS, counts, strict=True)]
    return pa.table([list(column) for column in zip(*rows, strict=True)], EVASIONS)


def is_answered(spans: Answer) -> bool:
    return any(span.strip() for span in spans)


def is_refusal(spans: Answer) -> bool:
    """Whether an answer says that there is none: it has a word of refusal and no digit."""
    text = " ".join(spans)
    return REFUSAL.search(text) is not None and DIGIT.search(text) is None


def plan(config: Relational, trainings: Trainings) -> Job | tuple[()]:
    if config.given is None:
        return ()
    return Job(evasions, Comparison(config.data), tuple(asked.job for asked in trainings.answers))


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for each in tables.rows(EVASIONS):
        share = proportion(each["answers"], each["questions"])
        yield row(each["kind"], {"split": each["split"], "contexts": each["contexts"]}, share, "question")


MEASURE = Measure("evasions", EVASIONS, plan, rows)
