"""Summary rows: reading settings, selecting rows by setting, and short labels."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
LETTERS = 24  # maximum length of a label
LEAST = 6  # letters kept when a word is shortened


def read_setting(text: str | None) -> dict[str, Any]:
    """Parse a row's setting. Raises ValueError if it is not JSON."""
    return dict(json.loads(text or "{}"))


def find_rows(summary: Sequence[Row], metric: str, **setting: Any) -> Iterator[tuple[dict[str, Any], Row]]:
    """Yield the rows of a metric whose settings include these values, each with its parsed setting."""
    for row in summary:
        if row["metric"] == metric:
            row_setting = read_setting(row["setting"])
            if all(row_setting.get(name) == value for name, value in setting.items()):
                yield row_setting, row


def find_row(summary: Sequence[Row], metric: str, **setting: Any) -> Row | None:
    """Return the row of a metric with exactly this setting. Returns None if there is none."""
    return next((row for row_setting, row in find_rows(summary, metric) if row_setting == setting), None)


def finite(value: Any) -> bool:
    """Whether the value is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def row_label(row: Row, max_letters: int = LETTERS) -> str:
    """Return a label that distinguishes the rows of a metric: the values in its setting."""
    return fit_words(words(row), max_letters) or "all"


def words(row: Row) -> list[str]:
    """Return the values in a row's setting, with names for numbers.

    A setting that is not JSON is returned unchanged.
    """
    try:
        setting = read_setting(row["setting"])
    except ValueError:
        return [str(row["setting"])]
    result = []
    for name, value in setting.items():
        result.append(f"{name} {value}" if isinstance(value, int | float) else str(value))
    return result


def fit_words(words: Sequence[str], max_letters: int = LETTERS) -> str:
    """Join the words with commas, shortening the longest ones until they fit.

    All words are kept because the last one often distinguishes rows.
    """
    words = list(words)
    while (over := len(", ".join(words)) - max_letters) > 0 and max(map(len, words)) > LEAST:
        longest = max(range(len(words)), key=lambda index: len(words[index]))
        words[longest] = shorten(words[longest], max(LEAST, len(words[longest]) - over))
    return shorten(", ".join(words), max_letters)


def shorten(text: str, max_letters: int = LETTERS) -> str:
    """Truncate the text to at most `max_letters` letters, ending in an ellipsis."""
    if len(text) <= max_letters:
        return text
    return text[: max_letters - 1] + "…"


def format_range(counts: Sequence[int]) -> str:
    """Format sample sizes: one number if all are equal, otherwise the smallest and the largest."""
    low, high = min(counts), max(counts)
    if low == high:
        return f"{low:,}"
    return f"{low:,} to {high:,}"
