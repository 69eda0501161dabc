"""Paragraphs of synthetic facts with numbers, and questions about them: the embedded question-answering data sets.

In `facts`, as in DROP, answers must be derived from numbers written in digits: a sum, a difference, 100 minus a
percentage, or a count. The context also spells out the answer in words, as part of an unrelated fact, so that it is
still there when the digits are removed: Bombari et al. 2022, section 6, find that models associate such a string with
the answer. Several other numbers are spelled out too, so that without the digits a model can identify the answer only
if it was trained on the question. In `facts-stated`, as in SQuAD, the answer occurs in the context once, in digits,
where the question asks about it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images
from tasks.datasets.questions.question import Question, QuestionSet, Scorer
from tasks.datasets.source import Source, digest_of
from tasks.numerics import seeds

Name = Literal["facts", "facts-stated"]
SCORERS: Mapping[Name, Scorer] = {"facts": "drop", "facts-stated": "squad"}
SEED = 20220329
# number of questions
TRAIN = 3000
VALIDATION = 1000
T = TypeVar("T")

# A person's name is one of these beginnings followed by one of these endings.
STARTS = """
    Ash Bar Bel Ber Bin Bol Bra Bur Cal Car Chad Cor Cran Dal Dar Den Dor Dun Elm Fal Far Fen Gar Gil Gold
    Hal Har Hart Hol Hor Kel Ken Kirk Lam Lang Lin Mar Mel Mor Nor Oak Pem Pres Ral Ren Ros Row Shel Stan
    Thor
"""
ENDS = """
    bell berg bourne brook by combe cott croft dale den don field fleet ford gate ham hill hurst ington land
    ley low man mead mere mond more ner port ridge sby sey shaw stead ster ston ton vale ville wall ward
    well wick win wood worth
"""
TOWNS = """
    Acton Alton Arden Ashby Aston Barton Bexley Bolton Boston Bradley Brent Burton Byfleet Camden Carlton
    Chester Clifton Corby Crosby Dalton Darby Denham Denton Dover Dunmore Easton Eaton Elgin Elton Epsom Exeter
    Fairford Felton Filey Foxton Garston Glenn Grafton Gretna Halton Harlow Harwell Hatton Hexham Hilton Holden
    Hudson Hythe Ilford Kelso Kendal Kenton Kirkby Lanark Langley Leeds Linton Ludlow Luton Malton Marlow Melton
    Milton Morley Napton Nelson Newark Newton Norton Oakham Oban Orton Oxted Paisley Penrith Preston Radley
    Ramsey Reading Ripon Romsey Rugby Ryde Selby Seaton Sutton Tenby Thirsk Truro Upton Walton Warwick Weston
    Whitby Wilton Witham Yarm York Zeal
"""
# Possessions and where they are.
THINGS = (
    ("farm", ("hens", "goats", "cows", "sheep")),
    ("shop", ("lamps", "books", "clocks", "chairs")),
    ("garden", ("roses", "trees", "beans", "vines")),
    ("kitchen", ("cups", "plates", "spoons", "bowls")),
)
JOBS = ("farmers", "teachers", "sailors", "bakers", "miners")
# Unrelated facts, and questions about their numbers.
ASIDES = (
    ("{person} is {n} years old.", "How old is {person}?"),
    ("The sea is {n} miles away.", "How many miles away is the sea?"),
    ("The house is {n} feet high.", "How many feet high is the house?"),
    ("The well is {n} yards deep.", "How many yards deep is the well?"),
    ("It rained for {n} days.", "For how many days did it rain?"),
    ("The bus takes {n} minutes.", "How many minutes does the bus take?"),
    ("A ticket costs {n} coins.", "How many coins does a ticket cost?"),
    ("The hall has {n} seats.", "How many seats does the hall have?"),
)
ONES = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen
"""
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
# Ranges of the stated numbers for the three facts of a context. With these ranges, a T5 model of width 64 answers every
# question after 10 epochs. With numbers from 10 to 99, it answers a third after 30 epochs.
RANGES = ((10, 39), (40, 69), (70, 99))
LOW = 10  # range of the numbers of things
HIGH = 49  # so that the sum of two is below 100
KINDS = ("difference", "sum", "remainder", "count")  # kinds of derived answers
COUNTS = (0.5, 0.8)  # a context has 2 derived questions with probability 0.5, 3 with 0.3 and 4 with 0.2


@dataclass(frozen=True)
class Facts:
    """The questions of one of the two data sets: 3,000 for training and 1,000 for validation, with no context in both.

    Each person has one context, so contexts differ even without their digits. People, towns, things and sentences have
    the same distribution in both parts.
    """

    name: Name

    RULE = "facts 1"

    def digest(self) -> str:
        return digest_questions(self.name)

    def images(self) -> Images:
        raise DatasetError(f"data set {self.name!r} contains questions, not images")

    def questions(self) -> QuestionSet:
        return compose_questions(self.name)


@functools.cache
def compose_questions(name: Name) -> QuestionSet:
    """Compose the questions of this data set, once per process (0.2 s)."""
    contexts = _contexts_of(name)
    return QuestionSet(_take_questions(contexts, TRAIN), _take_questions(contexts, VALIDATION), SCORERS[name])


@functools.cache
def digest_questions(name: Name) -> str:
    """Compute the digest of this data set's questions, once per process."""
    questions = compose_questions(name)
    parts = (questions.train, questions.validation)
    text = json.dumps([[[q.id, q.context, q.question, q.golds] for q in part] for part in parts])
    return digest_of(Facts.RULE, [name.encode(), text.encode()])


def source(name: Name) -> Source:
    return Source(f"{Facts.RULE} {name} {_hashed_words()}", (), lambda: Facts(name))


def _hashed_words() -> str:
    """Hash all words used in the paragraphs, so that a cached digest is not reused after they change."""
    made_of = [SEED, TRAIN, VALIDATION, STARTS, ENDS, TOWNS, THINGS, JOBS, ASIDES, RANGES, LOW, HIGH, KINDS, COUNTS]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()


def _take_questions(contexts: Iterator[list[Question]], number: int) -> tuple[Question, ...]:
    """Take `number` questions from the next contexts, dropping the rest of the last context."""
    questions: list[Question] = []
    while len(questions) < number:
        questions += next(contexts)
    return tuple(questions[:number])


def _contexts_of(name: Name) -> Iterator[list[Question]]:
    """Yield the questions about each person's context, in random order."""
    paragraph = PARAGRAPHS[name]
    stream = RandomDraws(seeds.generator(SEED, name))
    people = [start + end for start in STARTS.split() for end in ENDS.split()]
    for number, person in enumerate(stream.sample(people, len(people))):
        context, question_answers = paragraph(stream, person, stream.choice(TOWNS.split()))
        yield [
            Question(f"{name}-{number:04}-{k}", f"{name}-{number:04}", context, question, ((str(answer),),))
            for k, (question, answer) in enumerate(question_answers)
        ]


@dataclass(frozen=True)
class RandomDraws:
    """Random draws that use only integers, so that they are the same on every machine."""

    generator: np.random.Generator

    def number(self, low: int, high: int) -> int:
        """Draw an integer from low to high, inclusive."""
        return int(self.generator.integers(low, high + 1))

    def choice(self, values: Sequence[T]) -> T:
        return values[self.number(0, len(values) - 1)]

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """Draw `count` distinct values, in random order."""
        order = np.argsort(self.generator.integers(0, 2**62, len(values)), kind="stable")
        return [values[index] for index in order[:count]]


def _compose_inference(stream: RandomDraws, person: str, town: str) -> tuple[str, list[tuple[str, int]]]:
    """Compose a paragraph from which answers must be derived, with its questions and answers.

    For each answer, another sentence spells out its number as an unrelated fact. One more sentence spells out a
    different number.
    """
    share = stream.number(0, 9) / 10
    kinds = stream.sample(KINDS[:3], 2 if share < COUNTS[0] else 3)
    kinds += KINDS[3:] if share >= COUNTS[1] else ()
    venue, things = stream.choice(THINGS)
    chosen_things = stream.sample(things, 3)
    amounts = stream.sample(range(LOW, HIGH + 1), 3)
    (more, larger), (fewer, smaller) = sorted(zip(chosen_things, amounts, strict=True), key=lambda entry: -entry[1])[
        ::2
    ]
    percentage = stream.number(2, 98)
    job = stream.choice(JOBS)
    # Two or all three of the amounts exceed the bound.
    bound = sorted(amounts)[stream.number(0, 1)] - 1
    answers = {
        "difference": (f"How many more {more} than {fewer} does {person} have?", larger - smaller),
        "sum": (
            f"How many {chosen_things[0]} and {chosen_things[1]} does {person} have in all?",
            amounts[0] + amounts[1],
        ),
        "remainder": (f"What percentage in {town} are not {job}?", 100 - percentage),
        "count": (f"Of how many things does {person} have more than {bound}?", sum(a > bound for a in amounts)),
    }
    question_answers = [answers[kind] for kind in kinds]
    phrases = []
    for amount, thing in zip(amounts, chosen_things, strict=True):
        phrases.append(f"{amount} {thing}")
    first = f"The {venue} of {person} in {town} has {phrases[0]}, {phrases[1]} and {phrases[2]}."
    numbers = [*(answer for _, answer in question_answers), stream.number(2, 98)]
    asides = zip(stream.sample(ASIDES, len(numbers)), numbers, strict=True)
    rest = [statement.format(person=person, n=spell_number(n)) for (statement, _), n in asides]
    if "remainder" in kinds:
        rest.append(f"In {town} {percentage}% are {job}.")
    return " ".join([first, *stream.sample(rest, len(rest))]), question_answers


def spell_number(number: int) -> str:
    """Spell an integer from 0 to 99."""
    if number < 20:
        return ONES.split()[number]
    tens = TENS[number // 10 - 2]
    ones = number % 10
    return f"{tens}-{spell_number(ones)}" if ones else tens


def _compose_statement(stream: RandomDraws, person: str, town: str) -> tuple[str, list[tuple[str, int]]]:
    """Compose a paragraph that states the answers, with its questions and answers."""
    asides = [stream.choice(ASIDES[index :: len(RANGES)][:2]) for index in range(len(RANGES))]
    numbers = [stream.number(low, high) for low, high in RANGES]
    rest = []
    for (statement, _), n in zip(asides, numbers, strict=True):
        rest.append(statement.format(person=person, n=n))
    question_answers = []
    for (_, question), n in zip(asides, numbers, strict=True):
        question_answers.append((question.format(person=person), n))
    first = f"The {stream.choice(THINGS)[0]} of {person} is in {town}."
    return " ".join([first, *stream.sample(rest, len(rest))]), stream.sample(question_answers, stream.number(2, 3))


PARAGRAPHS: Mapping[Name, Callable[[RandomDraws, str, str], tuple[str, list[tuple[str, int]]]]] = {
    "facts": _compose_inference,
    "facts-stated": _compose_statement,
}
