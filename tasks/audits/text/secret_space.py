"""Secrets of a format: texts with a part that is drawn from a known space, such as a card's digits.

    Patient {number}: code {digits:6}.          {number} is the secret's own number, which is no secret

`{digits:6}`, `{letters:6}` (capitals), `{hex:6}` and `{alphanumeric:6}` stand for so many characters, each drawn
evenly. A secret that was drawn evenly from its space is one among equals for whoever never saw it: its rank by any
score is an exact p-value.
"""

from __future__ import annotations

import itertools
import math
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

ALPHABETS: Mapping[str, str] = {
    "digits": string.digits,
    "letters": string.ascii_uppercase,
    "hex": string.digits + "abcdef",
    "alphanumeric": string.digits + string.ascii_letters,
    "variant": "89ab",  # of a random UUID: RFC 9562, section 4.1
}
PLACE = re.compile(rf"\{{(number|(?:{'|'.join(ALPHABETS)}):[1-9]\d?)\}}")
ALLOWED_DRAWN = "{digits:N}, {letters:N}, {hex:N} or {alphanumeric:N} with N from 1 to 99"
ALLOWED = f"{{number}}, {ALLOWED_DRAWN}"


@dataclass(frozen=True)
class SecretSpace:
    """The texts of a pattern; ValueError, in one line, for one that cannot be drawn from.

    One that is `numbered` must hold {number}, and any other must not.
    """

    pattern: str
    numbered: bool = True

    def __post_init__(self) -> None:
        left = PLACE.sub("", self.pattern)
        if "{" in left or "}" in left:
            raise ValueError(f"pattern is {self.pattern!r}; what stands in braces must be {ALLOWED}")
        if not self.alphabets:
            raise ValueError(f"pattern is {self.pattern!r} and has nothing to draw; give it {ALLOWED}")
        if not self.numbered and "{number}" in self.pattern:
            raise ValueError(f"{self.pattern!r} has {{number}}, which no identifier has; it must be {ALLOWED_DRAWN}")
        if self.numbered and "{number}" not in self.pattern:
            raise ValueError(
                f"pattern is {self.pattern!r}; it must hold {{number}}, by which secrets are told from one another"
            )

    @cached_property
    def alphabets(self) -> tuple[str, ...]:
        """What each drawn character is drawn from, in the order of the text."""
        drawn = [place.split(":") for place in PLACE.findall(self.pattern) if place != "number"]
        return tuple(ALPHABETS[kind] for kind, count in drawn for _ in range(int(count)))

    @property
    def size(self) -> int:
        """The number of secrets that there are."""
        return math.prod(map(len, self.alphabets))

    def draw(self, chance: np.random.Generator) -> str:
        """The drawn characters of one secret, each evenly."""
        return "".join(alphabet[int(chance.integers(len(alphabet)))] for alphabet in self.alphabets)

    def all_others(self, secret: str) -> list[str]:
        """Every other secret of the space."""
        return [other for each in itertools.product(*self.alphabets) if (other := "".join(each)) != secret]

    def write(self, number: int, secret: str) -> str:
        """The text that holds a secret."""
        characters = iter(secret)

        def fill(place: re.Match[str]) -> str:
            kind, _, count = place[1].partition(":")
            return str(number) if kind == "number" else "".join(itertools.islice(characters, int(count)))

        return PLACE.sub(fill, self.pattern)


def mean_exposure_of_uniform_ranks(size: int) -> float:
    """The mean exposure where each rank from 1 to `size` is equally likely, in bits."""
    return math.log2(size) - math.lgamma(size + 1) / math.log(2) / size


def candidates(space: SecretSpace, secret: str, references: int, chance: np.random.Generator) -> Iterator[str]:
    """The secret, and then those among which it is ranked: all others if these are few, else `references` draws."""
    yield secret
    if space.size <= references + 1:
        yield from space.all_others(secret)
    else:
        for _ in range(references):
            yield space.draw(chance)
