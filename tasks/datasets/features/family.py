"""The family of a feature: similar features, among which the feature can be ranked by a model's scores.

If the feature was itself drawn from its family before training (`drawn`) and is not memorised, each of the count + 1
features is equally likely to have the highest score, and the rank is an exact p-value.
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np

from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.features.kinds import GLYPHS, Feature, Glyph, Picture, Words
from tasks.datasets.features.names import names
from tasks.numerics import seeds
from tasks.worker.delimited_text import DelimitedTextError, decode_text
from tasks.worker.files import File, read

Kind = Literal["alike", "letters", "names"]

# After so many draws in a row without a new member the family is taken to be exhausted.
FRUITLESS = 2000
# The seeds of permuted glyphs and pictures are drawn below this.
SEEDS = 2**31
LETTER = "abcdefghijklmnopqrstuvwxyz"
# The frequency of each letter in English, per 100,000 letters. Lewand 2000, "Cryptological Mathematics", p. 36.
FREQUENCIES = (
    8167, 1492, 2782, 4253, 12702, 2228, 2015, 6094, 6966, 153, 772, 4025, 2406, 6749, 7507, 1929, 95, 5987, 6327,
    9056, 2758, 978, 2360, 150, 1974, 74,
)  # fmt: skip
# From so many letters on, two random runs with these frequencies are equal once in fifty thousand draws.
RARELY_EQUAL = 4
RUN = re.compile(r"[^\W\d_]+|\d+")  # letters, or digits


@dataclass(frozen=True)
class Family(Ranged):
    """The kind and number of the other features.

    `alike`: a glyph's or a picture's with its pixels permuted; for words, other names in the same typeface, size and
    place, with as many letters in each word. Of `letters` there are 25.
    """

    kind: Kind = "alike"
    """alike: of the same kind and ink; letters: a letter's other letters; names: for words, those in the file
    `names`."""
    count: Annotated[int, AtLeast(1)] = 200
    """How many other features."""
    names: File | None = None
    """A file with one name a line."""

    @property
    def look_alikes(self) -> int:
        """How many look-alikes there are of each part: none unless single models are evaluated (`AskedFamily`)."""
        return 0

    def conflicts(self) -> Iterator[str]:
        if self.kind == "letters" and self.count >= len(GLYPHS):
            yield f"count is {self.count}; it must be at most {len(GLYPHS) - 1}, a letter's other letters"
        if (self.kind == "names") != (self.names is not None):
            given = "a file" if self.names else "no file"
            yield f"names is {given}, but kind is {self.kind}; kind must be names where one is given"


@dataclass(frozen=True)
class AskedFamily(Family):
    """The family of a feature on which single models are evaluated; it may include look-alikes of the feature."""

    look_alikes: Annotated[int, AtLeast(0)] = 0  # a field in place of the property
    """Number of further features, for each part of the feature (the words of a name, the halves of a glyph or a
    picture), that differ from it in this part alone. With 0 the feature is not distinguished from one that shares a
    part with it."""


def family(feature: Feature, config: Family, seed: int, shape: tuple[int, int] | None = None) -> list[Feature]:
    """`config.count` members of the feature's family, their pixels distinct from one another and from the feature's.

    Given the (height, width) of the images, those that do not fit are left out. ValueError where there are too few,
    or the feature has no such family.
    """
    every = members(feature, config, seeds.generator(seed, "family"))
    seen = {feature.patch().pixels()}
    distinct: list[Feature] = []
    fruitless = 0
    for member in every:
        patch = member.patch()
        if patch.pixels() in seen or not (shape is None or patch.fits(*shape)):
            fruitless += 1
            if fruitless == FRUITLESS:
                break
            continue
        fruitless = 0
        seen.add(patch.pixels())
        distinct.append(member)
        if len(distinct) == config.count:
            return distinct
    fitting = "" if shape is None else f" and fit an image of {shape[0]} x {shape[1]}"
    raise ValueError(
        f"count is {config.count}; it must be at most {len(distinct)}: no more features of the family of "
        f"{feature.describe()} look different{fitting}"
    )


def draw_member(
    feature: Feature, seed: int, config: Family | None = None, shape: tuple[int, int] | None = None
) -> Feature:
    """A member of the feature's own family, drawn at random, as those of `family` with the same config and shape are.

    Its rank among its own `family` is then exact.
    """
    every = members(feature, config or Family(), seeds.generator(seed, "drawn feature"))
    for tries, member in enumerate(every):
        if shape is None or member.patch().fits(*shape):
            return member
        if tries == FRUITLESS:
            break
    raise ValueError(f"no feature of the family of {feature.describe()} fits the images")


def members(feature: Feature, config: Family, generator: np.random.Generator) -> Iterator[Feature]:
    """Features drawn one by one: endlessly and independently, or each of a list once, in random order."""
    if config.kind == "letters":
        if not isinstance(feature, Glyph) or feature.kind != "letter":
            raise ValueError(f"kind is letters, but {feature.describe()} is no letter; it must be alike")
        every = sorted(GLYPHS)
        return (replace(feature, text=every[at]) for at in generator.permutation(len(every)))
    if config.names is not None:
        if not isinstance(feature, Words):
            raise ValueError(f"kind is names, but {feature.describe()} is no words; it must be alike")
        listed = listed_words(config.names, feature.words)
        return (replace(feature, words=listed[at]) for at in generator.permutation(len(listed)))
    match feature:
        case Glyph():
            return (replace(feature, kind="random", seed=int(generator.integers(SEEDS))) for _ in endless())
        case Picture():
            return (replace(feature, seed=int(generator.integers(1, SEEDS))) for _ in endless())
        case Words():
            return alike(feature, config.count, generator)


def endless() -> Iterator[None]:
    while True:
        yield None


def listed_words(file: File, words: str) -> list[str]:
    """The file's lines, each once, sorted; in capitals, or small letters, where the words are."""
    try:
        text = decode_text(read(file))
    except DelimitedTextError as error:
        raise ValueError(error.describe(file.path)) from None
    listed = {" ".join(line.split()) for line in text.splitlines()} - {""}
    if words.isupper():
        listed = {line.upper() for line in listed}
    elif words.islower():
        listed = {line.lower() for line in listed}
    if not listed:
        raise ValueError(f"{file.path} has no names; it must have one a line")
    return sorted(listed)


def alike(feature: Words, count: int, generator: np.random.Generator) -> Iterator[Feature]:
    """Words in the same typeface, size and place: other names with as many letters in each run, and other digits.

    Other characters stay as they are. Where the listed names of these lengths make fewer than twice the texts wanted,
    the runs with the fewest listed names become random letters, in all members alike: a name among members that are
    none would stand out, and the ranks would not be exact. The letters have their frequencies in English, or equal ones
    in runs below RARELY_EQUAL letters.
    """
    lengths = listed_lengths(feature, count)

    def other(match: re.Match[str]) -> str:
        return other_run(match.group(), lengths, generator)

    return (replace(feature, words=RUN.sub(other, feature.words)) for _ in endless())


def listed_lengths(feature: Words, count: int) -> set[int]:
    """The lengths of runs that are names from the list in all of the feature's family.

    ValueError where the words have no family of other names.
    """
    runs = [run.group() for run in RUN.finditer(feature.words)]
    foreign = next((letter for letter in feature.words if letter.isalpha() and not is_latin(letter)), None)
    if foreign is not None or not runs:
        what = f"{foreign!r} is no Latin letter" if runs else "it has no letter or digit"
        raise ValueError(f"words is {feature.words!r}: {what}; its family must be given, by kind names")
    return named_lengths(tuple(runs), count)


def other_run(run: str, lengths: set[int], generator: np.random.Generator) -> str:
    """Another run in place of this one: digits, a name from the list where it is of one of the lengths, or letters."""
    if run[0].isdigit():
        return "".join(str(digit) for digit in generator.integers(10, size=len(run)))
    if len(run) in lengths:
        choices = names()[len(run)]
        replaced = choices[generator.integers(len(choices))]
    else:
        # Among few texts, common ones would be drawn first too often for the ranks to be exact.
        shares = None if len(run) < RARELY_EQUAL else np.array(FREQUENCIES) / sum(FREQUENCIES)
        replaced = "".join(LETTER[at] for at in generator.choice(len(LETTER), len(run), p=shares))
    return "".join(new.upper() if old.isupper() else new for old, new in zip(run, replaced, strict=True))


def named_lengths(runs: tuple[str, ...], count: int) -> set[int]:
    """The lengths of runs of letters for which names are taken from the list."""
    digits = sum(len(run) for run in runs if run[0].isdigit())
    lengths = [len(run) for run in runs if not run[0].isdigit()]
    listed = {length for length in lengths if length in names()}

    def texts() -> int:
        ways: int = math.prod(len(names()[length]) for length in lengths if length in listed)
        random: int = 10**digits * len(LETTER) ** sum(length for length in lengths if length not in listed)
        return ways * random

    while listed and texts() < 2 * count:
        listed.remove(min(listed, key=lambda length: len(names()[length])))
    return listed


@functools.cache
def is_latin(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith("LATIN ")
