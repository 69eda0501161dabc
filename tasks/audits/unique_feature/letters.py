"""Reconstruct the letters of a name from a model's slopes at its position.

The layout of the words is assumed to be known: which columns each letter occupies, and whether it is a capital, a small
letter or a digit. For each position, the letter is chosen whose ink correlates best with the slopes in its columns.
Other names of the same family, each with its own layout, show how many letters are read correctly by chance.
"""

from __future__ import annotations

import functools
import itertools
import math
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.audits.unique_feature.slopes import Array
from tasks.datasets.features import Feature, Words
from tasks.datasets.features.kinds import OPAQUE, render_words
from tasks.worker.files import File

TINY = 1e-9  # avoids division by 0 for a letter without ink in its columns
ALPHABETS = (string.ascii_uppercase, string.ascii_lowercase, string.digits)


@dataclass(frozen=True)
class ReadLetters:
    """The words that the slopes spell, the number of letters, and how many are correct, actually and by chance."""

    words: str
    letters: int
    right: int
    right_by_chance: float


def read_letters(feature: Words, family: Sequence[Feature], slopes: Array) -> ReadLetters:
    """Read the letters at the position of these words from slopes (h, w). `family` gives the chance rate."""
    spelled = spell(feature, slopes)
    by_chance = []
    for member in family:
        if isinstance(member, Words):
            by_chance.append(_count_right(spell(member, slopes), member.words))
    letters = sum(alphabet(letter) is not None for letter in feature.words)
    chance = float(np.mean(by_chance)) if by_chance else math.nan
    return ReadLetters(spelled, letters, _count_right(spelled, feature.words), chance)


def spell(feature: Words, slopes: Array) -> str:
    """Return the words with each letter replaced by the letter of its kind that fits the slopes best."""
    blocks = _letter_blocks(feature, slopes)
    return "".join(_best_letter(feature, letter, block) for letter, block in zip(feature.words, blocks, strict=True))


def _best_letter(feature: Words, letter: str, block: Array) -> str:
    """Return the letter of the same kind as `letter` that fits a block of slopes best.

    A character that is not a letter or digit is returned unchanged.
    """
    letters = alphabet(letter)
    if letters is None or not block.size:
        return letter
    inks = centred_inks(feature.font, feature.size, letters, block.shape[1])
    return letters[int(np.argmax(inks @ (block - block.mean()).ravel()))]


def _count_right(spelled: str, words: str) -> int:
    return sum(
        alphabet(true_letter) is not None and true_letter == read_letter
        for true_letter, read_letter in zip(words, spelled, strict=True)
    )


def alphabet(letter: str) -> str | None:
    """Return all letters of the same kind, or None for other characters, such as a space."""
    return next((letters for letters in ALPHABETS if letter in letters), None)


def _letter_blocks(feature: Words, slopes: Array) -> Iterator[Array]:
    """Yield the slopes in the font's line and in each letter's columns, 0 beyond the edges of the image."""
    font = feature.typeface()
    edge = 2 * feature.size
    padded = np.pad(slopes, edge)
    start = edge + feature.left - round(font.getbbox(feature.words, anchor="ls")[0])
    ends = []
    for count in range(len(feature.words) + 1):
        ends.append(start + round(font.getlength(feature.words[:count])))
    top = edge + feature.top
    for first, last in itertools.pairwise(ends):
        yield padded[top : top + sum(font.getmetrics()), first:last]


@functools.lru_cache(256)
def centred_inks(font: File | None, size: int, letters: str, width: int) -> Array:
    """Return the ink of each letter in `width` columns, shape (letters, pixels), with mean 0 and norm 1.

    Its product with slopes is proportional to the correlation with them, with the same factor for all letters.
    """
    typeface = Words("A", font, size).typeface()
    ascent, descent = typeface.getmetrics()
    renderings = []
    for letter in letters:
        renderings.append(render_words(letter, typeface, (ascent + descent, width), (0, ascent)).ravel())
    inks = np.array(renderings) / OPAQUE
    centred = inks - inks.mean(axis=1, keepdims=True)
    return np.asarray(centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), TINY))
