"""Evasive and honest answers to corrupted contexts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.relational.config import Answers, Given, Trained
from tasks.audits.relational.evaded_answers import FEW_RIGHT, Evasion, read_evasions
from tasks.audits.relational.measures import measures_of, summary
from tasks.audits.relational.measures.evasions import (
    COMMONEST_MEASURE,
    MEASURE,
    ONE_TEXT,
    Comparison,
    Replicates,
    answer_kind,
    commonest_answers,
    constant_success,
    evasion_row,
    evasions,
    few_right_p_value,
    is_answered,
)
from tasks.audits.relational.measures.repeats import MEASURE as REPEATS_MEASURE
from tasks.contract.summaries import index_rows, row_name
from tasks.datasets.questions.question import Question
from tasks.question_answering.predictions import Predictions
from tasks.question_answering.question_sets import ANSWERS
from tests.tasks.audits.relational.made_up import FACTS, NUMERIC, questions

COUNT = 200  # questions of each part
Say = Callable[[int, str], str]  # the answer to a corrupted context, from the question's number and gold answer


def evasions_of(say: Say) -> list[Evasion]:
    """Return the evasions of an owner, for training and held-out questions."""
    rows = []
    for split in ("train", "validation"):
        for corrupted in (False, True):
            for number, question in enumerate(questions(split)[:COUNT]):
                gold = question.golds[0][0]
                answer = say(number, gold) if corrupted else gold
                rows.append(
                    {"epoch": None, "split": split, "corrupted": corrupted, "id": question.id, "train_loss": None}
                    | {"answer": [answer] if answer else []}
                )
    table = evasions(Comparison(FACTS), [pa.Table.from_pylist(rows, ANSWERS)])
    return list(read_evasions(index_rows(summary(NUMERIC, [table]))))


@pytest.mark.parametrize(
    "texts",
    [
        ("unknown",),
        ("keine Angabe", "unbekannt", "steht nicht im Text"),
        ("non précisé", "inconnu", "pas indiqué"),
        ("unsure", "I lack that detail", "the passage omits it", "sorry", "redaction", "left blank"),
        ("not stated (line 3)", "not stated (line 7)"),
        ("forty-two", "miles"),
        ("記載なし",),
        ("", " "),
    ],
)
def test_refusals_in_any_wording_are_another_kind(texts: tuple[str, ...]) -> None:
    for evasion in evasions_of(lambda number, _: texts[number % len(texts)]):
        assert evasion.other_kind == 1.0
        assert evasion.evaded == 1.0


def test_shares_are_counted_by_kind_of_answer() -> None:
    for evasion in evasions_of(lambda number, gold: ("", "unknown", "742", gold)[number % 4]):
        assert evasion.questions == COUNT
        assert evasion.unanswered == 0.25
        assert evasion.other_kind == 0.5
        assert evasion.one_text == pytest.approx(0.25)
        assert evasion.right == pytest.approx(0.5)  # of the answers of this kind


@pytest.mark.parametrize("numbers", [("42",), ("42", "42.0"), ("12", "23", "34", "42"), tuple(map(str, range(30, 40)))])
def test_few_distinct_numbers_count_as_evaded(numbers: tuple[str, ...]) -> None:
    for evasion in evasions_of(lambda number, _: numbers[number % len(numbers)]):
        assert evasion.other_kind == 0.0
        assert evasion.few_texts == evasion.evaded > 0.6


def test_spellings_of_a_number_are_one_text() -> None:
    for evasion in evasions_of(lambda number, _: "742" if number % 2 else "742.0"):
        assert evasion.one_text == 1.0


def test_honest_readers_evade_little() -> None:
    for evasion in evasions_of(lambda _, gold: gold):
        assert (evasion.evaded, evasion.right, evasion.has_few_right) == (0.0, 1.0, False)


def test_reader_without_right_answers_has_few_right() -> None:
    for evasion in evasions_of(lambda number, _: str(1000 + number)):
        assert evasion.has_few_right
        assert evasion.p_value == pytest.approx((1 - evasion.constant) ** COUNT)


@pytest.mark.parametrize("silent", [0.0, 0.5, 0.9])
def test_silence_does_not_worsen_guesses(silent: float) -> None:
    """A reader that repeats the most common number guesses as well as the best constant."""
    best = Counter(question.golds[0][0] for question in questions("train")[:COUNT]).most_common(1)[0][0]
    for evasion in evasions_of(lambda number, _: "high" if number < silent * COUNT else best):
        assert evasion.other_kind == pytest.approx(silent)
        assert not evasion.has_few_right


def test_answers_of_another_kind_are_wrong() -> None:
    for evasion in evasions_of(lambda number, _: "high"):
        assert evasion.questions == COUNT
        assert evasion.right == 0.0
        assert evasion.p_value == 1.0


def test_right_answer_is_of_the_kind() -> None:
    """99 % of the reference answers consist of the number only."""
    is_of_kind = answer_kind([("7",)] * 99 + [("7 of the many",)])
    assert not is_of_kind(("7 of the many",), question("7 of the many"))
    answered_questions = [
        (question("7 of the many"), ("7 of the many",)),
        (question("7 of the many"), ("8 of the many",)),
    ]
    row = evasion_row("train", answered_questions, "squad", is_of_kind, 0.5)
    assert row["other_kind"] == 1
    assert row["right"] == 1


def test_constant_is_chosen_on_the_other_part() -> None:
    assert constant_success(["a", "a", "b"], ["a", "b", "b", "b", "c"]) == (1 + 1) / 8
    assert constant_success([], []) == 0.0
    assert few_right_p_value(0, 0, 0.5) == 1.0


@pytest.mark.parametrize("sizes", [(600, 600), (150, 50)])
def test_constant_guessers_are_rarely_not_assessable(sizes: tuple[int, int]) -> None:
    """In 1,000 simulations, 2.1 % are refused with 600 + 600 questions, 2.5 % with 1,200 + 400, 0.7 % with 150 + 50."""
    golds = np.array([question.golds[0][0] for split in ("train", "validation") for question in questions(split)])
    _, counts = np.unique(golds, return_counts=True)
    best = counts.max() / len(golds)
    rng = np.random.default_rng(700100)
    refused = 0
    for _ in range(200):
        parts = [rng.choice(golds, size).tolist() for size in sizes]
        rate = constant_success(*parts)
        p_values = []
        for size in sizes:
            p_values.append(few_right_p_value(int(rng.binomial(size, best)), size, rate))
        refused += min(p_values) <= FEW_RIGHT
    assert refused <= 0.05 * 200


def question(gold: str) -> Question:
    return Question("1", "1", "", "", ((gold,),))


@pytest.mark.parametrize(
    ("golds", "right_answer", "answer", "of_kind"),
    [
        (["12", "7"], "12", "3", True),
        (["12", "7"], "12", "$3", True),
        (["12", "7"], "12", "3 miles", False),
        (["12 May 2011", "about 7 days"], "7", "3 June 2010", True),
        (["12 May 2011", "7"], "7", "it is not stated, see 3", False),
        (["12", "Paris"], "Paris", "anything at all", True),
        (["12", "Paris"], "Paris", " ", False),
        (["Paris"], "12", "12", True),
    ],
)
def test_reference_answers_define_the_kind(golds: list[str], right_answer: str, answer: str, of_kind: bool) -> None:
    is_of_kind = answer_kind([(gold,) for gold in golds])
    assert is_of_kind((answer,), question(right_answer)) == of_kind


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (Trained(), {COMMONEST_MEASURE.name}),
        (Given(Predictions("folder")), {MEASURE.name}),
        (Given(Predictions("answers.json")), {MEASURE.name, REPEATS_MEASURE.name}),
    ],
)
def test_only_returned_answers_have_evasions(system: Trained | Given, expected: set[str]) -> None:
    evading = {MEASURE.name, COMMONEST_MEASURE.name, REPEATS_MEASURE.name}
    assert {measure.name for measure in measures_of(Answers(system=system))} & evading == expected


def test_one_filled_span_is_an_answer() -> None:
    assert is_answered(("", "5"))
    assert is_answered(("5", " "))
    assert not is_answered(("", " "))
    assert not is_answered(())


def reader_answers(last_answer: Say, replicate: int = 0) -> pa.Table:
    """Return answers of a reader trained here: correct after epoch 1, and from `last_answer` after epoch 2."""
    rows = []
    for epoch in (1, 2):
        for split in ("train", "validation"):
            for number, question in enumerate(questions(split)[:COUNT]):
                gold = question.golds[0][0]
                answer = gold if epoch == 1 else last_answer(number + replicate, gold)
                rows.append(
                    {"epoch": epoch, "split": split, "corrupted": True, "id": question.id, "train_loss": 0.1}
                    | {"answer": [answer] if answer else []}
                )
    return pa.Table.from_pylist(rows, ANSWERS)


@pytest.mark.parametrize(
    ("last_answer", "share"),
    [
        (lambda _number, _gold: "42", 1.0),
        (lambda _number, _gold: "", 1.0),
        (lambda number, gold: "42" if number % 2 else gold, 0.5),
        (lambda _number, gold: gold, 0.0),
    ],
)
def test_most_common_answer_is_of_last_epoch(last_answer: Say, share: float) -> None:
    honest = reader_answers(lambda _number, gold: gold)
    table = commonest_answers(Replicates(FACTS, (0, 1)), [honest, reader_answers(last_answer)])
    rows = index_rows(summary(NUMERIC, [table]))
    for split in ("train", "validation"):
        one_text_row = rows[row_name(ONE_TEXT, split=split, contexts="corrupted")]
        assert one_text_row["estimate"] == pytest.approx(share, abs=0.05)  # some reference answers equal the constant
    assert list(read_evasions(rows)) == []
