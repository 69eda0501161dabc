from __future__ import annotations

import pytest

from tasks.datasets.catalog import load_questions
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Question, QuestionSet, redrawn


def test_parts_that_are_drawn_have_all_questions_and_no_context_in_common() -> None:
    given = load_questions(Dataset("facts"))
    drawn = redrawn(given, 3)
    assert given.by_id == drawn.by_id
    assert len(given.train) <= len(drawn.train) <= len(given.train) + 4
    contexts = [{question.context_id for question in part} for part in (drawn.train, drawn.validation)]
    assert not contexts[0] & contexts[1]
    assert given.scorer == drawn.scorer


def test_they_are_drawn_by_the_seed_alone() -> None:
    given = load_questions(Dataset("facts"))
    assert redrawn(given, 3).train == redrawn(given, 3).train
    assert redrawn(given, 3).train != redrawn(given, 4).train
    moved = {question.id for question in redrawn(given, 3).train} - {question.id for question in given.train}
    assert 0.15 * len(given.by_id) < len(moved) < 0.25 * len(given.by_id)  # a quarter of three quarters is expected


def test_too_few_contexts_cannot_be_parted() -> None:
    questions = [Question(str(n), "one", "Text.", "What?", (("1",),)) for n in range(3)]
    with pytest.raises(ValueError, match="there are 1 contexts"):
        redrawn(QuestionSet(questions[:2], questions[2:], "squad"), 0)
