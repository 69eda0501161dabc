"""Secrets of a format: texts with a part that is drawn from a known space, such as a card's digits.

    Patient {number}: code {digits:6}.          {number} is the secret's own number, which is no secret

`{digits:6}`, `{letters:6}` (capitals), `{hex:6}` and `{alphanumeric:6}` stand for so many characters, each drawn
evenly. A secret that was drawn evenly from its space is one among equals for whoever never saw it: its rank by any
score is an exact p-value.

`draw_secrets` draws those of a pair of models, each with the side that is told it and the others among which it is
ranked; `score_table` is what a model says of them.

Random ids, keys and hashes that stand in texts already are such secrets by nature. Nobody has to plant them before
training: whoever made them drew them, so the rank of one is an exact p-value of a model that is there already, too.
Zhang, Kamath & Tramer 2024 (arXiv 2409.19798); "Natural identifiers" (arXiv 2606.24408). It holds only of what was
drawn evenly: ids that grow with time, or have check digits, are refused by name, and those that `find_identifiers`
finds are held against their space without any model (`control_p_value`).
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from tasks.audits.text.continuations import ENDS
from tasks.contract.schemas import make_table
from tasks.numerics import seeds
from tasks.numerics.evenness import evenness_p_values

Told = Literal["secrets", "others"]
Repetitions = tuple[int, ...]

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

FORMATS: Mapping[str, str] = {
    "uuid4": "{hex:8}-{hex:4}-4{hex:3}-{variant:1}{hex:3}-{hex:12}",
    "md5": "{hex:32}",
    "sha1": "{hex:40}",
    "sha256": "{hex:64}",
}
ORDERED, CHECKED = "grows with time", "has check digits"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("uuid1", "uuid6", "uuid7", "ulid", "ksuid", "objectid", "snowflake"), ORDERED),
    **dict.fromkeys(("iban", "isbn", "imei", "ean", "card", "luhn"), CHECKED),
}
MOST_CONTROLLED = 1000  # identifiers of a format that the control looks at
NO_LETTER_OR_DIGIT = "0-9A-Za-z"

SCORES = pa.schema(
    [
        ("pair", pa.int64()),
        ("secret", pa.int64()),  # its number, from 1
        ("repetitions", pa.int64()),  # in the training data of one model of the pair
        ("inserted", pa.bool_()),  # whether in those of this one; of a null, whether another secret is in its place
        ("log_p", pa.list_(pa.float64())),  # of the text with the secret, and with each of its references, in nats
    ]
)


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
        """Draw the characters of one secret, each uniformly from its alphabet."""
        return self.draw_many(chance, 1)[0]

    def draw_many(self, chance: np.random.Generator, count: int) -> list[str]:
        """Draw secrets: the same as that number of calls of `draw`, in one call of the generator."""
        sizes = [len(alphabet) for alphabet in self.alphabets]
        rows = chance.integers(sizes, size=(count, len(sizes))).tolist()
        return ["".join(map(str.__getitem__, self.alphabets, row)) for row in rows]

    def all_others(self, secret: str) -> list[str]:
        """Every other secret of the space."""
        return [other for each in itertools.product(*self.alphabets) if (other := "".join(each)) != secret]

    def write(self, number: int, secret: str) -> str:
        """The text that holds a secret."""
        return _fill_pattern(self.pattern, number, secret)

    def surroundings(self, number: int) -> tuple[str, str]:
        """What stands before the first drawn character, and after the last, in the text of a secret."""
        drawn = [place for place in PLACE.finditer(self.pattern) if place[1] != "number"]
        before, after = self.pattern[: drawn[0].start()], self.pattern[drawn[-1].end() :]
        return _fill_pattern(before, number, ""), _fill_pattern(after, number, "")


def _fill_pattern(pattern: str, number: int, secret: str) -> str:
    """The pattern with the number and the drawn characters in their places."""
    characters = iter(secret)

    def fill(place: re.Match[str]) -> str:
        kind, _, count = place[1].partition(":")
        return str(number) if kind == "number" else "".join(itertools.islice(characters, int(count)))

    return PLACE.sub(fill, pattern)


def mean_exposure_of_uniform_ranks(size: int) -> float:
    """The mean exposure where each rank from 1 to `size` is equally likely, in bits."""
    return math.log2(size) - math.lgamma(size + 1) / math.log(2) / size


def candidates(space: SecretSpace, secret: str, references: int, chance: np.random.Generator) -> Iterator[str]:
    """The secret, and then those among which it is ranked: all others if these are few, else `references` draws."""
    yield secret
    if space.size <= references + 1:
        yield from space.all_others(secret)
    else:
        yield from space.draw_many(chance, references)


class Drawing(Protocol):
    """What the secrets of a config are drawn by; `draw` is the seed."""

    @property
    def pattern(self) -> str: ...
    @property
    def secrets(self) -> int: ...
    @property
    def repetitions(self) -> Repetitions: ...
    @property
    def references(self) -> int: ...
    @property
    def told(self) -> Told: ...
    @property
    def draw(self) -> int: ...


@dataclass(frozen=True)
class Secret:
    """A secret of a pair: its number, from 1, the side whose model is told it, and how often."""

    number: int
    side: int
    repetitions: int
    text: str  # what is asked about
    told: str  # what stands in the training data
    others: tuple[str, ...]  # texts of the other candidates


def draw_secrets(config: Drawing) -> list[Secret]:
    """The secrets of a pair, each told to the model of one side by a coin."""
    space, made = SecretSpace(config.pattern), []
    coins = seeds.generator(config.draw, "sides").integers(0, 2, config.secrets)
    for number, side in enumerate(coins.tolist(), start=1):
        secret, other = (space.draw(seeds.generator(config.draw, stream, number)) for stream in ("secret", "other"))
        among = candidates(space, secret, config.references, seeds.generator(config.draw, "references", number))
        first, *rest = (space.write(number, each) for each in among)
        told = first if config.told == "secrets" else space.write(number, other)
        times = config.repetitions[(number - 1) % len(config.repetitions)]
        made.append(Secret(number, side, times, first, told, tuple(rest)))
    return made


def secret_surroundings(config: Drawing) -> list[tuple[str, str]]:
    """What stands before and after each of the secrets in its text."""
    space = SecretSpace(config.pattern)
    return [space.surroundings(number) for number in range(1, config.secrets + 1)]


def score_table(
    secrets: Sequence[Secret],
    scores: Iterable[Sequence[float]],
    side: int,
    pair: int = 0,
    ends: Mapping[str, Sequence[float | None]] | None = None,
) -> pa.Table:
    """log p of each secret's text and of its others', by the model that is told those of this side (SCORES).

    `ends` are columns of how the model goes on before each secret, if it was asked (`tasks.audits.text.continuations`).
    """
    table = make_table(
        SCORES,
        pair=pair,
        secret=[secret.number for secret in secrets],
        repetitions=[secret.repetitions for secret in secrets],
        inserted=[secret.side == side for secret in secrets],
        log_p=list(scores),
    )
    return add_ends(table, ends)


def add_ends(table: pa.Table, ends: Mapping[str, Sequence[float | None]] | None) -> pa.Table:
    """The table with the columns of ENDS, and the tokens that these are of; as it is where they were not asked for."""
    types = {"tokens": pa.int64(), **dict(ENDS)}
    for name, values in (ends or {}).items():
        table = table.append_column(name, pa.array(values, types[name]))
    return table


@dataclass(frozen=True)
class Identifier:
    """One that was found: its format, the text in which it stands first, where, and what of it is drawn."""

    format: str
    row: int
    start: int
    drawn: str
    occurrences: int


def space_of(name: str) -> SecretSpace:
    """The space of a format by name, or written as a pattern; ValueError, in one line, for any other."""
    reason = REFUSED.get(name.lower())
    if reason is not None:
        raise ValueError(f"identifiers has {name}, which {reason}; they must be drawn evenly, by nature")
    if name not in FORMATS and "{" not in name:
        raise ValueError(f"identifiers has {name!r}; each must be one of {', '.join(FORMATS)}, or hold {ALLOWED_DRAWN}")
    return SecretSpace(FORMATS.get(name, name), numbered=False)


def find_identifiers(texts: Sequence[str], formats: Sequence[str]) -> list[Identifier]:
    """The identifiers of these formats, each once, in the order in which they stand in the texts."""
    return list(_scan_texts(tuple(texts), tuple(formats)))


@functools.lru_cache(maxsize=4)  # a plan asks several times for the identifiers of the same texts
def _scan_texts(texts: tuple[str, ...], formats: tuple[str, ...]) -> tuple[Identifier, ...]:
    found: dict[tuple[str, str], Identifier] = {}
    expressions = {name: expression(space_of(name).pattern) for name in formats}
    for row, text in enumerate(texts):
        for name, pattern in expressions.items():
            for match in pattern.finditer(text):
                drawn = "".join(match.groups())
                known = found.get((name, drawn), Identifier(name, row, match.start(), drawn, 0))
                found[name, drawn] = Identifier(name, known.row, known.start, drawn, known.occurrences + 1)
    return tuple(found.values())


def expression(pattern: str) -> re.Pattern[str]:
    """What finds a pattern where no letter or digit stands beside it, a group for each place."""
    parts, after = [], 0
    for place in PLACE.finditer(pattern):
        kind, _, count = place[1].partition(":")
        parts += [re.escape(pattern[after : place.start()]), f"([{ALPHABETS[kind]}]{{{count}}})"]
        after = place.end()
    whole = "".join([*parts, re.escape(pattern[after:])])
    return re.compile(f"(?<![{NO_LETTER_OR_DIGIT}]){whole}(?![{NO_LETTER_OR_DIGIT}])")


def control_p_value(found: Sequence[Identifier], formats: Sequence[str], seed: int) -> float:
    """The smallest p-value that identifiers are drawn evenly, times the number of tests (Bonferroni), at most 1.

    1 where no format has two identifiers.
    """
    p_values = []
    for name in formats:
        drawn = [each.drawn for each in found if each.format == name][:MOST_CONTROLLED]
        if len(drawn) > 1:
            p_values += evenness_p_values(drawn, space_of(name).alphabets, seeds.generator(seed, "control", name))
    return min(1.0, len(p_values) * min(p_values)) if p_values else 1.0
