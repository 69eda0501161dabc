import pytest

from tasks.datasets.questions.question import Scorer
from tasks.question_answering.scoring import score_answer


@pytest.mark.parametrize("scorer", ["squad", "drop"])
def test_the_gold_answer_that_agrees_best_counts_for_each_score(scorer: Scorer) -> None:
    assert (1.0, 1.0) == score_answer(scorer, ("the end",), (("beginning",), ("end",), ("of the end",)))
    assert (0.0, 0.8) == tuple(
        round(s, 1) for s in score_answer(scorer, ("red fox",), (("hen",), ("red",), ("red fox x",)))
    )


def test_both_rules_differ_in_numbers() -> None:
    assert ((1.0, 1.0), (0.0, 0.0)) == tuple(score_answer(rule, ("76.5",), (("765",),)) for rule in ("squad", "drop"))
    assert ((0.0, 0.0), (1.0, 1.0)) == tuple(score_answer(rule, ("76.50",), (("76.5",),)) for rule in ("squad", "drop"))


def test_blank_gold_answers_of_drop_are_passed_over() -> None:
    assert (0.0, 0.0) == score_answer("drop", ("",), (("",), ("4",)))
    assert (1.0, 0.0) == score_answer("squad", ("",), (("",), ("4",)))


def test_without_gold_answers_there_is_no_score() -> None:
    with pytest.raises(ValueError, match="there is no gold answer"):
        score_answer("squad", ("4",), ())
