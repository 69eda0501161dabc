"""Blind questions before they are sent to the owner of a system.

All questions are in one set, some of them twice, in an order derived from a secret. Each has its own id and context.
The returned answers are mapped back to the questions by these ids.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from tasks.contract.job import Inputs, task
from tasks.contract.schemas import table_of_rows
from tasks.datasets.catalog import load_questions
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.questions.question import Answer, Question
from tasks.external.blinding import HandedOut, blind_images
from tasks.external.sent_table import check_sets
from tasks.question_answering.predictions import Predictions, check_ids, parse_predictions
from tasks.question_answering.question_sets import (
    ANSWERS,
    SETS,
    Corruption,
    Form,
    ProbeQuestions,
    Selection,
    probe_sets,
)
from tasks.question_answering.scoring import match_key

SET_NAME = "questions"  # the exported set
# The identity of each question: `set` is one of SETS, and `question` is its id in the data.
KEY = pa.schema([("id", pa.string()), ("set", pa.string()), ("question", pa.string())])


@dataclass(frozen=True)
class Blinding:
    """The selection of exported questions, with both kinds of contexts, and the seed of their order."""

    data: Dataset
    selection: Selection
    corruption: Corruption
    order: int


@dataclass(frozen=True)
class ReadBlindedAnswers:
    """Configuration: the predictions for blinded questions."""

    given: Predictions
    handed: Blinding


@task(version=1, name="question_answering.read_blinded_answers")
def read_blinded_answers(config: ReadBlindedAnswers, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - reads a file
    """Read the answers (ANSWERS) in the file, keyed by the questions' ids in the data, with unknown epoch."""
    return unblind_answers(config)


def handout_questions(config: Blinding) -> tuple[str, ProbeQuestions]:
    """Return the name of the exported set, and its questions without gold answers."""
    handout, named_questions, form = _blind_sets(config)
    exported_questions = []
    for position, number in enumerate(handout.order):
        id_ = handout.id_of(handout.name, position)
        # The original ids of a question and its context would reveal which contexts are corrupted.
        exported_questions.append(replace(named_questions[number][1], id=id_, context_id=id_, golds=()))
    return handout.name, ProbeQuestions(exported_questions, form)


def key_table(config: Blinding) -> pa.Table:
    """Return the identity of each question (KEY), ordered by id."""
    handout, named_questions, _ = _blind_sets(config)
    rows = []
    for position, number in enumerate(handout.order):
        rows.append((handout.id_of(handout.name, position), named_questions[number][0], named_questions[number][1].id))
    return table_of_rows(KEY, rows)


def unblind_answers(config: ReadBlindedAnswers) -> pa.Table:
    """Return the answers (ANSWERS), set by set. A repeated question gets its first answer.

    Raises ValueError in the same cases as for four separate files.
    """
    handout, named_questions, _ = _blind_sets(config.handed)
    answers = _sent_answers(config)
    rows = []
    for id_, (name, question) in zip(handout.ids, named_questions, strict=True):
        split, corrupted = SETS[name]
        rows.append({"split": split, "corrupted": corrupted, "id": question.id, "answer": list(answers[id_])})
    return pa.Table.from_pylist(rows, ANSWERS)


def count_repeats(config: ReadBlindedAnswers) -> tuple[int, int]:
    """Return the number of repeated questions, and how many of them have two different answers by exact match."""
    handout, _, _ = _blind_sets(config.handed)
    scorer = load_questions(config.handed.data).scorer
    answers = _sent_answers(config)
    ids = handout.ids
    pairs = []
    for number, repeat_id in handout.repeats.items():
        pairs.append((answers[ids[number]], answers[repeat_id]))
    return len(pairs), sum(match_key(scorer, first) != match_key(scorer, second) for first, second in pairs)


def _sent_answers(config: ReadBlindedAnswers) -> Mapping[str, Answer]:
    """Return the answer to each exported question, keyed by its exported id."""
    handout, _, _ = _blind_sets(config.handed)
    (path,), (content,) = config.given.paths(), config.given.contents()
    answers = parse_predictions(path, content, load_questions(config.handed.data).scorer)
    ids = [handout.id_of(handout.name, position) for position in range(len(handout.order))]
    if answers.keys().isdisjoint(ids):
        check_sets(str(path), answers, ids)
        raise DatasetError(
            f"{path} answers no question that was exported with these settings, such as {ids[0]!r}; data, corruption, "
            "examples, held_out, numeric, seed and secret must be the same as for engram probes"
        )
    check_ids(path, answers, ids, set(ids))
    return answers


def _question_id(name: str, position: int) -> str:
    return f"{name}-{position:06d}"


@lru_cache(maxsize=2)
def _blind_sets(config: Blinding) -> tuple[HandedOut, list[tuple[str, Question]], Form]:
    """Return the blinded order, the set and question behind each number, and the format of the questions."""
    sets = dict(probe_sets(load_questions(config.data), config.corruption, config.selection))
    named_questions = []
    for name, probe_questions in sets.items():
        for question in probe_questions.questions:
            named_questions.append((name, question))
    (form,) = {probe_questions.form for probe_questions in sets.values()}
    digest = hashlib.sha256()
    for text in _texts(named_questions):
        digest.update(json.dumps(text).encode())
    return (
        blind_images([digest.hexdigest(), config.order], len(named_questions), config.order, SET_NAME, _question_id),
        named_questions,
        form,
    )


def _texts(every: list[tuple[str, Question]]) -> Iterator[tuple[str, str, str, str]]:
    for name, question in every:
        yield name, question.id, question.context, question.question
