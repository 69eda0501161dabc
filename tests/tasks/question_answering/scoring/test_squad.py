import pytest

from tasks.question_answering.scoring.squad import agreement, normalise


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
        ("“Köln” – Ärger", "“köln” – ärger"),  # only ASCII's punctuation goes
        ("a.", ""),
        ("", ""),
    ],
)
def test_words_are_normalised(text: str, words: str) -> None:
    assert words == " ".join(normalise(text))


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
        ("new new", "new york", 0, 0.5),  # a word counts as often as both have it
        ("", "1966", 0, 0),
        ("", "the", 1, 0),
        ("3 4", "3–4", 0, 0),
    ],
)
def test_an_answer_agrees_with_a_gold_answer(answer: str, gold: str, exact: float, f1: float) -> None:
    assert pytest.approx((exact, f1)) == agreement((answer,), (gold,))


def test_an_answer_without_spans_is_an_empty_text() -> None:
    assert (0.0, 0.0) == agreement((), ("1966",))


def test_several_spans_are_one_text() -> None:
    assert (1.0, 1.0) == agreement(("new", "york"), ("New York",))
