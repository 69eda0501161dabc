import pytest

from tasks.question_answering.scoring.drop import agreement, normalise


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("76.5", "76.5"),
        ("76.50 ", "76.5"),
        ("1.2e1", "12.0"),
        ("1,200", "1200.0"),
        ("76.5%", "765.0"),  # no number until its point has gone, too
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
def test_words_are_normalised(text: str, words: str) -> None:
    assert words == " ".join(normalise(text))


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
def test_an_answer_agrees_with_a_gold_answer(answer: list[str], gold: list[str], exact: float, f1: float) -> None:
    assert (exact, f1) == agreement(tuple(answer), tuple(gold))


def test_spans_are_aligned_as_is_best_for_all_and_not_one_after_the_other() -> None:
    # The first gold span agrees best with the first span (.8 against .5), but the second one more so (1 against .67).
    assert (0.0, 0.75) == agreement(("red fox", "red"), ("fox red hen", "fox red"))
