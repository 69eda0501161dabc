"""Natural identifiers: random ids, keys and hashes that stand in texts already, drawn from a known space by nature.

Nobody has to plant them before training: whoever made them drew them, as the secrets of this audit are drawn. So the
place of one among draws of its space is an exact p-value, too, of a model that is there already. Zhang, Kamath & Tramer
2024 (arXiv 2409.19798); "Natural identifiers" (arXiv 2606.24408).

It holds only of what was drawn evenly. Ids that grow with time, or have check digits, are refused by name, and those
that were found are held against their space without any model: by position, all characters together, against the one
found before, and as whole numbers by their remainders. Each statistic is compared with that of as many draws.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.audits.text.secret_space import ALLOWED_DRAWN, ALPHABETS, PLACE, SecretSpace
from tasks.numerics import seeds

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
MODULI = (7, 9, 11, 97)  # of common check digits, beside Luhn's
SIMULATIONS = 4999
MOST_CONTROLLED = 1000  # identifiers of a format that the control looks at
NO_LETTER_OR_DIGIT = "0-9A-Za-z"
Codes = NDArray[np.int64]  # (identifiers, characters), each the place of the character in its alphabet


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
    found: dict[tuple[str, str], Identifier] = {}
    expressions = {name: expression(space_of(name).pattern) for name in formats}
    for row, text in enumerate(texts):
        for name, pattern in expressions.items():
            for match in pattern.finditer(text):
                drawn = "".join(match.groups())
                known = found.get((name, drawn), Identifier(name, row, match.start(), drawn, 0))
                found[name, drawn] = Identifier(name, known.row, known.start, drawn, known.occurrences + 1)
    return list(found.values())


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


def evenness_p_values(drawn: Sequence[str], alphabets: Sequence[str], chance: np.random.Generator) -> list[float]:
    """The p-value of each of `unevenness` among as many draws; exact, since all are drawn alike where it holds."""
    sizes = np.array([len(alphabet) for alphabet in alphabets])
    codes = np.array(
        [[alphabet.index(character) for character, alphabet in zip(each, alphabets, strict=True)] for each in drawn]
    )
    observed = np.array(list(unevenness(codes, sizes)))
    larger = np.zeros(len(observed), dtype=np.int64)
    for _ in range(SIMULATIONS):
        larger += np.array(list(unevenness(chance.integers(0, sizes, codes.shape), sizes))) >= observed - 1e-9
    return [float(p) for p in (1 + larger) / (1 + SIMULATIONS)]


def unevenness(codes: Codes, sizes: NDArray[np.int64]) -> Iterator[float]:
    """Statistics that are large where codes are not even: by position, together, of neighbours, and of remainders."""
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    counts = np.bincount((codes + offsets).ravel(), minlength=int(sizes.sum()))
    expected = np.repeat(len(codes) / sizes, sizes)
    yield float(((counts - expected) ** 2 / expected).sum())
    for size in np.unique(sizes):
        yield chi_square(codes[:, sizes == size].ravel(), int(size))
    yield float((codes[1:] == codes[:-1]).sum())
    if set(sizes.tolist()) == {10}:
        doubled = 2 * codes[:, ::-1][:, 1::2]
        yield chi_square((codes[:, ::-1][:, ::2].sum(1) + (doubled - 9 * (doubled > 9)).sum(1)) % 10, 10)
        for modulus in MODULI:
            rest = np.zeros(len(codes), dtype=np.int64)
            for digits in codes.T:
                rest = (10 * rest + digits) % modulus
            yield chi_square(rest, modulus)


def chi_square(values: NDArray[np.int64], size: int) -> float:
    expected = len(values) / size
    return float(((np.bincount(values, minlength=size) - expected) ** 2).sum() / expected)
