"""Simulated scores of questions, fixed or random."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.relational.answer import verdict
from tasks.audits.relational.config import About, Relational
from tasks.audits.relational.measures import summary
from tasks.audits.relational.measures.memorization import Resampling, memorization
from tasks.audits.relational.measures.questions import QUESTION_SCORES
from tasks.audits.relational.presets import QUICKSTART
from tasks.contract.verdict import Verdict
from tasks.datasets.catalog import load_questions, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Question

Row = dict[str, Any]
FACTS = pin(Dataset("facts"))
NUMERIC = About("numeric")


def questions(split: str) -> Sequence[Question]:
    """Return the questions of a part of the embedded set."""
    data = load_questions(FACTS)
    return data.train if split == "train" else data.validation


def score_rows(
    split: str,
    corrupted: Sequence[float],
    whole: Sequence[float] | None = None,
    contexts: Sequence[Any] | None = None,
    ids: Sequence[str] | None = None,
    several: Sequence[float] | None = None,
    **columns: Any,
) -> list[Row]:
    """Return rows of the first questions of a part, with these scores on corrupted contexts and 1 on whole ones.

    Each question has a different context unless `contexts` names it. `several` are the scores on corrupted contexts if
    all gold answers count.
    """
    ids = ids or [question.id for question in questions(split)[: len(corrupted)]]
    whole = [1.0] * len(ids) if whole is None else whole
    rows = []
    for kind, values, best in ((False, whole, whole), (True, corrupted, several or corrupted)):
        for id_, context, value, high in zip(ids, contexts or ids, values, best, strict=True):
            row = {"replicate": 0, "epoch": 1, "split": split, "corrupted": kind, "id": id_, "context": str(context)}
            row |= {"numeric": True, "answered": True, "exact_match": value, "f1": value, "common_match": 0.0}
            rows.append(row | {"exact_match_all": high, "f1_all": high, "train_loss": 0.5} | columns)
    return rows


def table(*rows: Sequence[Row]) -> pa.Table:
    """Return the rows in the schema of the audit."""
    return pa.Table.from_pylist([row for part in rows for row in part], QUESTION_SCORES)


def counted_scores(train: tuple[int, int], validation: tuple[int, int], **columns: Any) -> pa.Table:
    """Return scores with (correct, total) corrupted contexts per part, one question each."""
    parts = {"train": train, "validation": validation}
    return table(
        *(
            score_rows(name, [1.0] * right + [0.0] * (total - right), **columns)
            for name, (right, total) in parts.items()
        )
    )


def memorization_of(*scores: pa.Table, resamples: int = 200, seed: int = 0) -> pa.Table:
    """Compute m of these scores with the task of the audit."""
    return memorization(Resampling(FACTS, resamples, seed), scores)


def verdict_of(
    *scores: pa.Table, config: Relational = QUICKSTART, about: About = NUMERIC, resamples: int = 200, seed: int = 0
) -> Verdict:
    """Return the answer to these scores of questions."""
    return verdict(config, summary(about, [memorization_of(*scores, resamples=resamples, seed=seed)]))


def draw_scores(
    rng: np.random.Generator,
    contexts: tuple[int, int],
    rates: tuple[float, float],
    alike: float = 0.3,
    noise: float = 0.0,
) -> pa.Table:
    """Return random scores of the first contexts of both parts, with two to four questions each.

    The rate of right answers on corrupted contexts is the rate of the part, with variation `alike` between contexts; a
    share `noise` of these answers is wrong in any case. Nine tenths of the answers on whole contexts are right.
    """
    parts = zip(("train", "validation"), contexts, rates, strict=True)
    return table(*(draw_rows(rng, split, count, rate, alike, noise) for split, count, rate in parts))


def draw_rows(rng: np.random.Generator, split: str, count: int, rate: float, alike: float, noise: float) -> list[Row]:
    questions_of_contexts = list(questions_by_context(split, count))
    scale = 1 / alike - 1
    context_numbers = np.concatenate(
        [[number] * len(context_questions) for number, context_questions in enumerate(questions_of_contexts)]
    )
    if rate:
        context_rates = rng.beta(rate * scale, (1 - rate) * scale, count)[context_numbers]
    else:
        context_rates = np.zeros(len(context_numbers))
    right = (rng.random(len(context_numbers)) < context_rates) & (rng.random(len(context_numbers)) >= noise)
    is_right_on_whole = rng.random(len(context_numbers)) < 0.9
    flat = []
    for context_questions in questions_of_contexts:
        flat.extend(context_questions)
    ids = [question.id for question in flat]
    names = [question.context_id for question in flat]
    return score_rows(split, right.astype(float).tolist(), is_right_on_whole.astype(float).tolist(), names, ids)


def questions_by_context(split: str, count: int) -> Iterator[list[Question]]:
    """Return the questions of the first contexts, by context."""
    groups = itertools.groupby(questions(split), key=lambda question: question.context_id)
    yield from (list(group) for _, group in itertools.islice(groups, count))
