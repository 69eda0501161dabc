"""Questions and answers as text."""

from __future__ import annotations

import pytest

from tasks.datasets.questions.question import Answer, Scorer
from tasks.language_models.texts import answer_text, parse_answer, question_text


def test_a_question_is_asked_as_t5_is_asked_it() -> None:
    assert "question: How many? context: Two hens." == question_text("How many?", "Two hens.")


@pytest.mark.parametrize(
    ("text", "scorer", "answer"),
    [
        ("Ada, Ben", "drop", ("Ada", "Ben")),
        ("1,200", "drop", ("1,200",)),
        ("Ada, Ben", "squad", ("Ada, Ben",)),
        (" 12 ", "squad", ("12",)),
        ("", "squad", ()),
        (", ", "drop", ()),
    ],
)
def test_a_text_is_read_as_spans_where_answers_have_several(text: str, scorer: Scorer, answer: Answer) -> None:
    assert answer == parse_answer(text, scorer)


def test_an_answer_is_read_from_its_own_text() -> None:
    assert ("Ada", "Ben") == parse_answer(answer_text(("Ada", "Ben")), "drop")
