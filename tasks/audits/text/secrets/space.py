"""Formats of secrets: texts with a part that is drawn uniformly from a known space.

    Patient {number}: code {digits:6}.          {number} is the number of the secret, which is public

`{digits:6}`, `{letters:6}` (capitals), `{hex:6}` and `{alphanumeric:6}` stand for six characters, each drawn uniformly.
The rank of such a secret by any score is an exact p-value for a model that never saw it.

`draw_secrets` draws the secrets of a model pair, the side that is trained on each, and its references; `score_table`
makes the table of a model's scores.

Random identifiers, keys and hashes in existing texts are natural secrets of this kind: whoever generated them drew them
at random, so the rank of an identifier is an exact p-value for a given model. Zhang, Kamath & Tramer 2024 (arXiv
2409.19798); "Natural identifiers" (arXiv 2606.24408). This requires a uniform draw. Formats that grow with time or
contain check digits are therefore rejected by name, and the identifiers found by `find_identifiers` are tested without
a model (`control_p_value`).
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
from typing import Protocol

import numpy as np
import pyarrow as pa

from tasks.audits.text.continuations import ENDS
from tasks.contract.schemas import make_table
from tasks.numerics import seeds
from tasks.numerics.evenness import evenness_p_values

Repetitions = tuple[int, ...]

ALPHABETS: Mapping[str, str] = {
    "digits": string.digits,
    "letters": string.ascii_uppercase,
    "hex": string.digits + "abcdef",
    "alphanumeric": string.digits + string.ascii_letters,
    "variant": "89ab",  # in a random UUID: RFC 9562, section 4.1
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
ORDERED = "grows with time"
CHECKED = "has check digits"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("uuid1", "uuid6", "uuid7", "ulid", "ksuid", "objectid", "snowflake"), ORDERED),
    **dict.fromkeys(("iban", "isbn", "imei", "ean", "card", "luhn"), CHECKED),
}
MOST_CONTROLLED = 1000  # number of identifiers per format that the blind control tests
NO_LETTER_OR_DIGIT = "0-9A-Za-z"

SCORES = pa.schema(
    [
        ("pair", pa.int64()),
        ("secret", pa.int64()),  # 1-based index of the secret
        ("repetitions", pa.int64()),  # number of copies in the training data of one model of the pair
        ("inserted", pa.bool_()),  # into this model's training data; in a control run, whether its replacement is
        ("log_p", pa.list_(pa.float64())),  # of the text with the secret, then of the text with each reference, in nats
    ]
)


@dataclass(frozen=True)
class SecretSpace:
    """The space of a pattern. The pattern contains {number} if and only if `numbered` is set.

    Raises ValueError if the pattern is invalid.
    """

    pattern: str
    numbered: bool = True

    def __post_init__(self) -> None:
        fixed_text = PLACE.sub("", self.pattern)
        if "{" in fixed_text or "}" in fixed_text:
            raise ValueError(f"pattern: expected {ALLOWED} in braces, got {self.pattern!r}. Correct the braces.")
        if not self.alphabets:
            raise ValueError(f"pattern: expected a random part, got {self.pattern!r}. Add {ALLOWED_DRAWN}.")
        if not self.numbered and "{number}" in self.pattern:
            raise ValueError(
                f"identifiers: expected {ALLOWED_DRAWN}, got {self.pattern!r}. Remove {{number}}, which identifiers "
                "do not have."
            )
        if self.numbered and "{number}" not in self.pattern:
            raise ValueError(
                f"pattern: expected {{number}}, got {self.pattern!r}. Add {{number}}, which distinguishes the secrets."
            )

    @cached_property
    def alphabets(self) -> tuple[str, ...]:
        """The alphabet of each random character, in text order."""
        parts = [part.split(":") for part in PLACE.findall(self.pattern) if part != "number"]
        return tuple(ALPHABETS[kind] for kind, count in parts for _ in range(int(count)))

    @property
    def size(self) -> int:
        """Number of possible secrets."""
        return math.prod(map(len, self.alphabets))

    def draw(self, chance: np.random.Generator) -> str:
        """Draw the characters of one secret, each uniformly from its alphabet."""
        return self.draw_many(chance, 1)[0]

    def draw_many(self, chance: np.random.Generator, count: int) -> list[str]:
        """Draw `count` secrets with one call of the generator. The result equals that of `count` calls of `draw`."""
        sizes = [len(alphabet) for alphabet in self.alphabets]
        rows = chance.integers(sizes, size=(count, len(sizes))).tolist()
        return ["".join(map(str.__getitem__, self.alphabets, row)) for row in rows]

    def all_others(self, secret: str) -> list[str]:
        """Return all other secrets of the space."""
        return [
            candidate
            for characters in itertools.product(*self.alphabets)
            if (candidate := "".join(characters)) != secret
        ]

    def write(self, number: int, secret: str) -> str:
        """Return the text that contains a secret."""
        return _fill_pattern(self.pattern, number, secret)

    def surroundings(self, number: int) -> tuple[str, str]:
        """Return the text before the first random character, and the text after the last."""
        parts = [part for part in PLACE.finditer(self.pattern) if part[1] != "number"]
        before, after = self.pattern[: parts[0].start()], self.pattern[parts[-1].end() :]
        return _fill_pattern(before, number, ""), _fill_pattern(after, number, "")


def _fill_pattern(pattern: str, number: int, secret: str) -> str:
    """Insert the number and the random characters into the pattern."""
    characters = iter(secret)

    def fill(part: re.Match[str]) -> str:
        kind, _, count = part[1].partition(":")
        if kind == "number":
            return str(number)
        return "".join(itertools.islice(characters, int(count)))

    return PLACE.sub(fill, pattern)


def mean_exposure_of_uniform_ranks(size: int) -> float:
    """Return the mean exposure in bits if each rank from 1 to `size` is equally likely."""
    return math.log2(size) - math.lgamma(size + 1) / math.log(2) / size


def candidates(space: SecretSpace, secret: str, references: int, chance: np.random.Generator) -> Iterator[str]:
    """Yield the secret and its references.

    The references are all other secrets if there are at most `references` of them, else `references` draws.
    """
    yield secret
    if space.size <= references + 1:
        yield from space.all_others(secret)
    else:
        yield from space.draw_many(chance, references)


class Drawing(Protocol):
    """The settings that determine the secrets. `draw` is the seed."""

    @property
    def pattern(self) -> str: ...
    @property
    def secrets(self) -> int: ...
    @property
    def repetitions(self) -> Repetitions: ...
    @property
    def references(self) -> int: ...
    @property
    def is_null(self) -> bool: ...
    @property
    def draw(self) -> int: ...


@dataclass(frozen=True)
class Secret:
    """One secret in a pair: its 1-based index, the side whose model is trained on it, and its repetition count."""

    number: int
    side: int
    repetitions: int
    text: str  # the tested text
    training_text: str  # the text in the training data, which is a different one in a control run
    references: tuple[str, ...]  # the texts of the other candidates


def draw_secrets(config: Drawing) -> list[Secret]:
    """Draw the secrets of a pair. For each, a coin decides which side is trained on it."""
    space = SecretSpace(config.pattern)
    secrets = []
    coins = seeds.generator(config.draw, "sides").integers(0, 2, config.secrets)
    for number, side in enumerate(coins.tolist(), start=1):
        secret = space.draw(seeds.generator(config.draw, "secret", number))
        replacement = space.draw(seeds.generator(config.draw, "other", number))
        among = candidates(space, secret, config.references, seeds.generator(config.draw, "references", number))
        first, *references = (space.write(number, candidate) for candidate in among)
        if not config.is_null:
            training_text = first
        else:
            training_text = space.write(number, replacement)
        times = config.repetitions[(number - 1) % len(config.repetitions)]
        secrets.append(Secret(number, side, times, first, training_text, tuple(references)))
    return secrets


def secret_surroundings(config: Drawing) -> list[tuple[str, str]]:
    """Return the text before and after each secret."""
    space = SecretSpace(config.pattern)
    return [space.surroundings(number) for number in range(1, config.secrets + 1)]


def score_table(
    secrets: Sequence[Secret],
    scores: Iterable[Sequence[float]],
    side: int,
    pair: int = 0,
    ends: Mapping[str, Sequence[float | None]] | None = None,
) -> pa.Table:
    """Return log p of each secret and of its references, as scored by the model of this side (SCORES).

    `ends` contains the columns of continuations, if the model continued the texts (`tasks.audits.text.continuations`).
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
    """Add the columns `tokens` and ENDS to the table, if they are given."""
    types = {"tokens": pa.int64(), **dict(ENDS)}
    for name, values in (ends or {}).items():
        table = table.append_column(name, pa.array(values, types[name]))
    return table


@dataclass(frozen=True)
class Identifier:
    """An identifier: its format, the text and position of its first occurrence, and its random characters."""

    format: str
    row: int
    start: int
    random_characters: str
    occurrences: int


def space_of(name: str) -> SecretSpace:
    """Return the space of a named format or of a pattern. Raises ValueError for any other name."""
    reason = REFUSED.get(name.lower())
    if reason is not None:
        raise ValueError(f"identifiers: expected random formats, got {name}, which {reason}. Remove it.")
    if name not in FORMATS and "{" not in name:
        raise ValueError(
            f"identifiers: expected {', '.join(FORMATS)} or a pattern with {ALLOWED_DRAWN}, got {name!r}. Correct "
            "the format."
        )
    return SecretSpace(FORMATS.get(name, name), numbered=False)


def find_identifiers(texts: Sequence[str], formats: Sequence[str]) -> list[Identifier]:
    """Find the identifiers with these formats, each once, in text order."""
    return list(_scan_texts(tuple(texts), tuple(formats)))


@functools.lru_cache(maxsize=4)  # a plan needs the identifiers of the same texts several times
def _scan_texts(texts: tuple[str, ...], formats: tuple[str, ...]) -> tuple[Identifier, ...]:
    identifiers: dict[tuple[str, str], Identifier] = {}
    expressions = {name: expression(space_of(name).pattern) for name in formats}
    for row, text in enumerate(texts):
        for name, pattern in expressions.items():
            for match in pattern.finditer(text):
                characters = "".join(match.groups())
                identifier = identifiers.get((name, characters), Identifier(name, row, match.start(), characters, 0))
                identifiers[name, characters] = Identifier(
                    name, identifier.row, identifier.start, characters, identifier.occurrences + 1
                )
    return tuple(identifiers.values())


def expression(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression that matches a whole identifier, with one group per random part."""
    parts = []
    after = 0
    for part in PLACE.finditer(pattern):
        kind, _, count = part[1].partition(":")
        parts += [re.escape(pattern[after : part.start()]), f"([{ALPHABETS[kind]}]{{{count}}})"]
        after = part.end()
    full_pattern = "".join([*parts, re.escape(pattern[after:])])
    return re.compile(f"(?<![{NO_LETTER_OR_DIGIT}]){full_pattern}(?![{NO_LETTER_OR_DIGIT}])")


def control_p_value(identifiers: Sequence[Identifier], formats: Sequence[str], seed: int) -> float:
    """Return the smallest p-value of the tests of uniform randomness, adjusted for their number (Bonferroni).

    The result is 1 if no format has two identifiers.
    """
    p_values = []
    for name in formats:
        characters = [identifier.random_characters for identifier in identifiers if identifier.format == name][
            :MOST_CONTROLLED
        ]
        if len(characters) > 1:
            p_values += evenness_p_values(characters, space_of(name).alphabets, seeds.generator(seed, "control", name))
    return min(1.0, len(p_values) * min(p_values)) if p_values else 1.0
