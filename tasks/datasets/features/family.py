"""The family of a feature: similar features against which it can be ranked by a model's scores.

If the feature was drawn from its family before training (`drawn`) and is not memorised, each of the count + 1
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

# After this many consecutive draws without a new member, the family counts as exhausted.
FRUITLESS = 2000
# Upper limit of the seeds that permute glyphs and pictures.
SEEDS = 2**31
LETTER = "abcdefghijklmnopqrstuvwxyz"
# Letter frequencies in English, per 100,000 letters. Lewand 2000, "Cryptological Mathematics", p. 36.
FREQUENCIES = (
    8167, 1492, 2782, 4253, 12702, 2228, 2015, 6094, 6966, 153, 772, 4025, 2406, 6749, 7507, 1929, 95, 5987, 6327,
    9056, 2758, 978, 2360, 150, 1974, 74,
)  # fmt: skip
# Two random runs of at least this length, drawn with these frequencies, are equal once in fifty thousand draws.
RARELY_EQUAL = 4
RUN = re.compile(r"[^\W\d_]+|\d+")  # letters, or digits


@dataclass(frozen=True)
class Family(Ranged):
    """The kind and number of the other features.

    `alike`: glyphs or pictures with permuted pixels. For words, other names in the same typeface, size and position,
    with the same number of letters in each word. `letters` has 25 members.
    """

    kind: Kind = "alike"
    """alike: same kind and ink; letters: the other letters, for a letter; names: for words, those in the file
    `names`."""
    count: Annotated[int, AtLeast(1)] = 200
    """Number of other features."""
    names: File | None = None
    """File with one name per line."""

    @property
    def look_alikes(self) -> int:
        """The number of look-alikes per part. It is 0 unless single models are evaluated (`AskedFamily`)."""
        return 0

    def conflicts(self) -> Iterator[str]:
        if self.kind == "letters" and self.count >= len(GLYPHS):
            yield f"count is {self.count}; it must be at most {len(GLYPHS) - 1}, a letter's other letters"
        if (self.kind == "names") != (self.names is not None):
            file_description = "a file" if self.names else "no file"
            yield (
                f"names is {file_description}, but kind is {self.kind}; kind must be names if and only if names is a "
                "file"
            )


@dataclass(frozen=True)
class AskedFamily(Family):
    """The family of a feature that is evaluated on single models. It may include look-alikes of the feature."""

    look_alikes: Annotated[int, AtLeast(0)] = 0  # a field that replaces the property
    """Number of further features, for each part of the feature (the words of a name, the halves of a glyph or a
    picture), that differ from it in this part alone. With 0, the feature cannot be distinguished from one that shares a
    part with it."""


def family(feature: Feature, config: Family, seed: int, shape: tuple[int, int] | None = None) -> list[Feature]:
    """Return `config.count` members of the feature's family, with distinct pixels that differ from the feature's own.

    With the `shape` (height, width) of the images, members that do not fit are omitted. Raises ValueError if there are
    too few members, or if the feature has no such family.
    """
    candidates = members(feature, config, seeds.generator(seed, "family"))
    earlier_pixels = {feature.patch().pixels()}
    distinct: list[Feature] = []
    fruitless = 0
    for member in candidates:
        patch = member.patch()
        if patch.pixels() in earlier_pixels or not (shape is None or patch.fits(*shape)):
            fruitless += 1
            if fruitless == FRUITLESS:
                break
            continue
        fruitless = 0
        earlier_pixels.add(patch.pixels())
        distinct.append(member)
        if len(distinct) == config.count:
            return distinct
    if shape is None:
        fitting = ""
    else:
        fitting = f" and fit an image of {shape[0]} x {shape[1]}"
    raise ValueError(
        f"count is {config.count}; it must be at most {len(distinct)}: no more features of the family of "
        f"{feature.describe()} look different{fitting}"
    )


def draw_member(
    feature: Feature, seed: int, config: Family | None = None, shape: tuple[int, int] | None = None
) -> Feature:
    """Draw a random member of the feature's family, in the same way as `family` does with the same config and shape.

    The rank of this member within its own `family` is then exact.
    """
    every = members(feature, config or Family(), seeds.generator(seed, "drawn feature"))
    for tries, member in enumerate(every):
        if shape is None or member.patch().fits(*shape):
            return member
        if tries == FRUITLESS:
            break
    raise ValueError(f"no feature of the family of {feature.describe()} fits the images")


def members(feature: Feature, config: Family, generator: np.random.Generator) -> Iterator[Feature]:
    """Yield random features, either endlessly and independently, or each item of a list once in random order."""
    if config.kind == "letters":
        if not isinstance(feature, Glyph) or feature.kind != "letter":
            raise ValueError(f"kind is letters, but {feature.describe()} is not a letter; use alike")
        letters = sorted(GLYPHS)
        return (replace(feature, text=letters[index]) for index in generator.permutation(len(letters)))
    if config.names is not None:
        if not isinstance(feature, Words):
            raise ValueError(f"kind is names, but {feature.describe()} is not words; use alike")
        listed_names = listed_words(config.names, feature.words)
        return (replace(feature, words=listed_names[index]) for index in generator.permutation(len(listed_names)))
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
    """Return the file's distinct lines, sorted.

    They are converted to upper or lower case if the words are in that case.
    """
    try:
        text = decode_text(read(file))
    except DelimitedTextError as error:
        raise ValueError(error.describe(file.path)) from None
    lines = {" ".join(line.split()) for line in text.splitlines()} - {""}
    if words.isupper():
        lines = {line.upper() for line in lines}
    elif words.islower():
        lines = {line.lower() for line in lines}
    if not lines:
        raise ValueError(f"{file.path} has no names; it must have one per line")
    return sorted(lines)


def alike(feature: Words, count: int, generator: np.random.Generator) -> Iterator[Feature]:
    """Yield words in the same typeface, size and position: other names of the same length per run, and other digits.

    Other characters do not change. If the listed names of these lengths yield fewer than twice the requested number of
    texts, the runs with the fewest listed names become random letters in all members. Otherwise a name among random
    letters would be recognisable, and the ranks would not be exact. Letters have their English frequencies, or equal
    frequencies in runs of fewer than RARELY_EQUAL letters.
    """
    lengths = listed_lengths(feature, count)

    def other(match: re.Match[str]) -> str:
        return other_run(match.group(), lengths, generator)

    return (replace(feature, words=RUN.sub(other, feature.words)) for _ in endless())


def listed_lengths(feature: Words, count: int) -> set[int]:
    """Return the run lengths that are filled with listed names in all members of the feature's family.

    Raises ValueError if the words have no family of other names.
    """
    runs = [run.group() for run in RUN.finditer(feature.words)]
    foreign = next((letter for letter in feature.words if letter.isalpha() and not is_latin(letter)), None)
    if foreign is not None or not runs:
        problem = "it has no letter or digit"
        if runs:
            problem = f"{foreign!r} is not a Latin letter"
        raise ValueError(f"words is {feature.words!r}: {problem}; set kind=names and a file of names")
    return named_lengths(tuple(runs), count)


def other_run(run: str, lengths: set[int], generator: np.random.Generator) -> str:
    """Draw a replacement for a run: digits, a listed name if the run has one of these lengths, or letters."""
    if run[0].isdigit():
        return "".join(str(digit) for digit in generator.integers(10, size=len(run)))
    if len(run) in lengths:
        choices = names()[len(run)]
        replaced = choices[generator.integers(len(choices))]
    else:
        # If there are few possible texts, common ones would be drawn too early for the ranks to be exact.
        if len(run) < RARELY_EQUAL:
            shares = None
        else:
            shares = np.array(FREQUENCIES) / sum(FREQUENCIES)
        replaced = "".join(LETTER[index] for index in generator.choice(len(LETTER), len(run), p=shares))
    return "".join(new.upper() if old.isupper() else new for old, new in zip(run, replaced, strict=True))


def named_lengths(runs: tuple[str, ...], count: int) -> set[int]:
    """Return the lengths of letter runs for which names are taken from the list."""
    digits = sum(len(run) for run in runs if run[0].isdigit())
    lengths = [len(run) for run in runs if not run[0].isdigit()]
    name_lengths = {length for length in lengths if length in names()}

    def texts() -> int:
        ways: int = math.prod(len(names()[length]) for length in lengths if length in name_lengths)
        random: int = 10**digits * len(LETTER) ** sum(length for length in lengths if length not in name_lengths)
        return ways * random

    while name_lengths and texts() < 2 * count:
        name_lengths.remove(min(name_lengths, key=lambda length: len(names()[length])))
    return name_lengths


@functools.cache
def is_latin(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith("LATIN ")
