"""Agreement of answers with gold answers, by the rules of SQuAD and DROP."""

from __future__ import annotations

import pytest

from tasks.datasets.questions.question import Scorer
from tasks.question_answering.scoring import drop_agreement, drop_words, score_answer, squad_agreement, squad_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("76.5", "765"),
        ("1,200", "1200"),
        ("The Cat, an owl and a dog!", "cat owl and dog"),
        ("  February\t6,\n2016 ", "february 6 2016"),
        ("thereafter Theatre", "thereafter theatre"),
        ("a-b", "ab"),
        ("78-yard", "78yard"),
        ("“Köln” – Ärger", "“köln” – ärger"),  # only ASCII punctuation is removed
        ("a.", ""),
        ("", ""),
    ],
)
def test_words_of_squad_are_normalised(text: str, words: str) -> None:
    assert words == " ".join(squad_words(text))


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "f1"),
    [
        ("February 6, 2016", "February 6, 2016", 1, 1),
        ("February", "February 6, 2016", 0, 0.5),
        ("the Super Bowl", "super bowl.", 1, 1),
        ("76.5", "765", 1, 1),
        ("1200", "1,200", 1, 1),
        ("1200.0", "1,200", 0, 0),
        ("in 1966 or 1967", "1966", 0, 0.4),
        ("new new york", "new york new", 0, 1),
        ("new new", "new york", 0, 0.5),  # a word counts with the smaller of its two frequencies
        ("", "1966", 0, 0),
        ("", "the", 1, 0),
        ("3 4", "3–4", 0, 0),
    ],
)
def test_squad_agreement(answer: str, gold: str, exact: float, f1: float) -> None:
    assert squad_agreement((answer,), (gold,)) == pytest.approx((exact, f1))


def test_answer_without_spans_is_empty_text() -> None:
    assert squad_agreement((), ("1966",)) == (0.0, 0.0)


def test_several_spans_are_one_text() -> None:
    assert squad_agreement(("new", "york"), ("New York",)) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("76.5", "76.5"),
        ("76.50 ", "76.5"),
        ("1.2e1", "12.0"),
        ("1,200", "1200.0"),
        ("76.5%", "765.0"),  # not a number until the point is removed
        ("$4", "4.0"),
        ("12.0 persons", "12.0 persons"),
        ("S.K. Singh", "sk singh"),
        ("78-yard", "78.0 yard"),
        ("-5", "5.0"),
        ("17 August 1966", "17.0 august 1966.0"),
        ("the a NOT an", "not"),
        ("5 – 6", "5.0 – 6.0"),
        ("Málaga", "málaga"),
        ("the", ""),
        ("", ""),
    ],
)
def test_words_of_drop_are_normalised(text: str, words: str) -> None:
    assert words == " ".join(drop_words(text))


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "f1"),
    [
        (["78"], ["78.0"], 1, 1),
        (["76.5"], ["765"], 0, 0),
        (["1200"], ["1,200"], 1, 1),
        (["John Elton"], ["Elton John"], 0, 1),  # the words are a set, and exact match minds their order
        (["78"], ["78-yard"], 0, 0.67),
        (["23 yards"], ["43 yards"], 0, 0),  # another number
        (["yard"], ["36 yard td"], 0, 0),
        (["26"], ["26 yard td"], 0, 0.5),
        (["26 yard"], ["yard"], 0, 0.67),  # a number that the gold answer lacks
        (["td"], ["td", "td"], 0, 0.5),
        (["td", "td"], ["td"], 0, 0.5),
        (["a", "b"], ["b", "a"], 1, 1),
        (["cat", "dog", "cat"], ["dog", "cat", "dog"], 1, 0.67),  # as sets of one size; aligned one to one
        (["cat dog", "cat"], ["cat", "cat dog"], 1, 1),
        (["John Karman", "Joe Hardy"], ["Joe Karman", "John Hardy"], 0, 0.5),
        (["78-yard", "56", "28", "40", "44", "touchdown"], ["78-yard", "56 yard", "1 yard touchdown"], 0, 0.28),
        (["17 August"], ["17 August "], 1, 1),
        (["the"], ["an"], 1, 1),
        ([""], ["army"], 0, 0),
        ([], ["army"], 0, 0),
        ([], [""], 0, 0),  # a blank gold answer
        ([""], ["  "], 0, 0),
        ([""], [], 0, 0),
    ],
)
def test_drop_agreement(answer: list[str], gold: list[str], exact: float, f1: float) -> None:
    assert (exact, f1) == drop_agreement(tuple(answer), tuple(gold))


def test_spans_are_aligned_jointly() -> None:
    # The first gold span agrees best with the first span (.8 against .5), but the second one more so (1 against .67).
    assert drop_agreement(("red fox", "red"), ("fox red hen", "fox red")) == (0.0, 0.75)


@pytest.mark.parametrize("scorer", ["squad", "drop"])
def test_best_gold_answer_counts_per_score(scorer: Scorer) -> None:
    assert score_answer(scorer, ("the end",), (("beginning",), ("end",), ("of the end",))) == (1.0, 1.0)
    assert tuple(round(s, 1) for s in score_answer(scorer, ("red fox",), (("hen",), ("red",), ("red fox x",)))) == (
        0.0,
        0.8,
    )


def test_both_rules_differ_in_numbers() -> None:
    assert tuple(score_answer(rule, ("76.5",), (("765",),)) for rule in ("squad", "drop")) == ((1.0, 1.0), (0.0, 0.0))
    assert tuple(score_answer(rule, ("76.50",), (("76.5",),)) for rule in ("squad", "drop")) == ((0.0, 0.0), (1.0, 1.0))


def test_blank_gold_answers_of_drop_are_passed_over() -> None:
    assert score_answer("drop", ("",), (("",), ("4",))) == (0.0, 0.0)
    assert score_answer("squad", ("",), (("",), ("4",))) == (1.0, 0.0)


def test_without_gold_answers_there_is_no_score() -> None:
    with pytest.raises(ValueError, match="expected at least one gold answer"):
        score_answer("squad", ("4",), ())
