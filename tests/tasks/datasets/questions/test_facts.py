import math
import re
from collections import Counter
from itertools import groupby

import pytest

from tasks.datasets.questions.facts import LOW, SCORERS, Facts, Name, spell_number
from tasks.datasets.questions.question import Question
from tasks.question_answering.question_sets import DigitRemoval

NAMES: tuple[Name, ...] = ("facts", "facts-stated")
DIGESTS = {
    "facts": "71ba4db3562848fd8487bfac560f86f9e4cf9d02f9f8ed0a7e1594ad16fe855a",
    "facts-stated": "fa48f10c89fa66e7a675a8c69fefc1d6afaf8d4435aca2724629439ace3ad037",
}


def all_questions(name: Name) -> list[Question]:
    questions = Facts(name).questions()
    return [*questions.train, *questions.validation]


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall("[0-9]+", text)]


@pytest.mark.parametrize("name", NAMES)
def test_questions_are_the_same_everywhere(name: Name) -> None:
    assert DIGESTS[name] == Facts(name).digest()


@pytest.mark.parametrize("name", NAMES)
def test_facts_have_3000_training_and_1000_validation_questions(name: Name) -> None:
    questions = Facts(name).questions()
    assert len(questions.train) == 3000
    assert len(questions.validation) == 1000
    assert questions.scorer == SCORERS[name]
    assert len(questions.by_id) == 4000


@pytest.mark.parametrize("name", NAMES)
def test_contexts_are_disjoint_even_without_digits(name: Name) -> None:
    questions = Facts(name).questions()
    train = {DigitRemoval().corrupt_context(question) for question in questions.train}
    validation = {DigitRemoval().corrupt_context(question) for question in questions.validation}
    assert not train & validation
    assert not {q.context_id for q in questions.train} & {q.context_id for q in questions.validation}


@pytest.mark.parametrize("name", NAMES)
def test_contexts_have_several_questions_and_few_words(name: Name) -> None:
    contexts = [list(group) for _, group in groupby(all_questions(name), lambda question: question.context_id)]
    assert {len({question.question for question in group}) for group in contexts[1:-1]} - {1} <= {2, 3, 4}
    assert {len({question.context for question in group}) for group in contexts} == {1}
    words = [len(group[0].context.split()) for group in contexts]
    assert 15 <= min(words) <= max(words) <= 48


def test_derived_answer_is_correct() -> None:
    for question in all_questions("facts"):
        amounts = {}
        for n, noun in re.findall(r"(\d+) (\w+)", question.context.split(".")[0]):
            amounts[noun] = int(n)
        (answer,) = question.golds[0]
        words = question.question.replace("?", "").split()
        if words[2] == "more":
            expected = amounts[words[3]] - amounts[words[5]]
        elif words[0] == "What":
            (percentage,) = re.findall("([0-9]+)%", question.context)
            expected = 100 - int(percentage)
        elif words[0] == "Of":
            expected = sum(amount > int(words[-1]) for amount in amounts.values())
        else:
            expected = amounts[words[2]] + amounts[words[4]]
        assert str(expected) == answer, question


def test_context_repeats_derived_answer_in_words() -> None:
    spelt = {spell_number(number): number for number in range(100)}
    for question in all_questions("facts"):
        words = re.findall("[a-z-]+", DigitRemoval().corrupt_context(question))
        repeated = [spelt[word] for word in words if word in spelt]
        assert int(question.golds[0][0]) in repeated, question
        assert 3 <= len(repeated) <= 5


def test_numbers_are_spelt_in_words() -> None:
    expected = ["zero", "nine", "twelve", "twenty", "twenty-one", "ninety-nine"]
    assert expected == [spell_number(number) for number in (0, 9, 12, 20, 21, 99)]
    assert len({spell_number(number) for number in range(100)}) == 100


def test_stated_answer_occurs_once_in_its_context() -> None:
    for question in all_questions("facts-stated"):
        assert numbers(question.context).count(int(question.golds[0][0])) == 1, question


def test_stated_answer_is_not_in_its_question() -> None:
    assert not any(numbers(question.question) for question in all_questions("facts-stated"))


@pytest.mark.parametrize("name", NAMES)
def test_both_parts_have_equal_distributions(name: Name) -> None:
    questions = Facts(name).questions()
    for feature in (lambda q: q.context.split()[1], lambda q: q.question.split()[1], lambda q: len(q.golds[0][0])):
        train = Counter(map(feature, questions.train))
        validation = Counter(map(feature, questions.validation))
        assert train.keys() == validation.keys()
        for value, count in train.items():
            # Within four standard errors; questions of one context are similar, which at most doubles the error.
            share = count / 3000
            error = 2 * math.sqrt(share * (1 - share) * (1 / 3000 + 1 / 1000))
            assert abs(validation[value] / 1000 - share) <= 4 * error, value


def test_answers_are_frequent_enough_to_estimate_entropy() -> None:
    for name in NAMES:
        counts = Counter(question.golds[0][0] for question in Facts(name).questions().train)
        entropy = -sum(count / 3000 * math.log(count / 3000) for count in counts.values())
        assert 3000 * math.exp(-entropy) > 30
        assert max(counts.values()) < 0.06 * 3000
    assert LOW > 9  # amounts are never confused with counts
