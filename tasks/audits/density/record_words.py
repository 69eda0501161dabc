"""Words for records that only a user's program holds: the texts of this audit call its observations images."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, TypeVar

from tasks.audits.density.config import Density, Memorization
from tasks.datasets.dataset import is_numbered

T = TypeVar("T")

IMAGE = re.compile(r"\b(?:(a)n )?(i)mage(s?)\b", re.IGNORECASE)


def is_about_records(config: Density) -> bool:
    """Return whether the observations are records that Engram knows only by number."""
    return isinstance(config.question, Memorization) and is_numbered(config.question.data)


def name_records(value: T) -> T:
    """Return a text, or a dataclass or tuple of texts, with `record` in place of `image`."""
    result: Any = value
    if isinstance(value, str):
        result = IMAGE.sub(_name_record, value)
    elif isinstance(value, tuple):
        result = tuple(name_records(part) for part in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: name_records(getattr(value, field.name)) for field in dataclasses.fields(value)}
        result = dataclasses.replace(value, **parts)
    return result  # type: ignore[no-any-return]


def _name_record(match: re.Match[str]) -> str:
    article = f"{match[1]} " if match[1] else ""
    noun = "Record" if match[2].isupper() else "record"
    return f"{article}{noun}{match[3]}"
