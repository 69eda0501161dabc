"""Formats values as text: counts, durations, sizes, terminal-safe names and JSON types."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from string import ascii_letters
from typing import Any

from tasks.contract.resources import Resources

MORE = "more "
MAX_DIGITS = 5  # in the exact form of a size
# Control and format characters (Cc, Cf), line separators and lone surrogates. A terminal may act on them or display the
# following text in another order. Blanks and letters of all scripts are allowed.
INVISIBLE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
IN_LINES = re.compile(f"[{INVISIBLE}]")
IN_A_LINE = re.compile(f"[\t\n{INVISIBLE}]")
SURROGATES = re.compile("[\ud800-\udfff]")
OTHER_SURROGATES = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # other than those that stand for an invalid byte
FORMULA = re.compile(r"[=+\-@\t\r\n]")  # OWASP, "CSV injection"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE)


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun: `1 training`, `12 pairs of trainings`, `12 canaries`.

    The first word is put in the plural, except after `more`, where it is the second word: `2 more jobs`.
    """
    if noun.startswith(MORE):
        count, _, plural_noun = format_count(number, noun.removeprefix(MORE)).partition(" ")
        return f"{count} {MORE}{plural_noun}"
    first, blank, rest = noun.partition(" ")
    if number == 1 or not first:
        ending = ""
    elif first.endswith(("s", "x", "ch", "sh")):
        ending = "es"
    else:
        ending = "s"
    if ending and re.search("[^aeiou]y$", first):
        first = first[:-1]
        ending = "ies"
    return f"{number:,} {first}{ending}{blank}{rest}".rstrip()


def format_duration(seconds: float) -> str:
    """Format a duration: 45 s, 3 min 20 s, 2 h 5 min."""
    total_seconds = round(seconds)
    if total_seconds < 1:
        return "under 1 s"
    if total_seconds < 60:
        return f"{total_seconds} s"
    minutes, remainder = divmod(total_seconds, 60)
    if minutes < 60:
        if remainder:
            return f"{minutes} min {remainder} s"
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if minutes:
        return f"{hours} h {minutes} min"
    return f"{hours} h"


def approximate_duration(seconds: float) -> str:
    """Round an estimated duration and format it: 40 s, 3 min 20 s, 18 min, 2 h 5 min."""
    if seconds < 10:
        step = 1
    elif seconds < 60:
        step = 5
    elif seconds < 600:
        step = 10
    elif seconds < 3600:
        step = 60
    else:
        step = 300
    return format_duration(max(1, round(seconds / step) * step))


def format_size(count: float) -> str:
    """Format a size in bytes with three digits, in the largest unit that gives at least 1: 1.5 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def format_resources(resources: Resources) -> str:
    """Format the stated resources of a job: 4 GPUs, 16 processors, 64GB of memory, at most 6h."""
    words = []
    if resources.gpus:
        words.append(format_count(resources.gpus, "GPU"))
    if resources.cpus:
        words.append(format_count(resources.cpus, "processor"))
    if resources.memory:
        memory = str(resources.memory)
        if len(memory.rstrip(ascii_letters)) > MAX_DIGITS:
            memory = format_size(resources.memory)
        words.append(f"{memory} of memory")
    if resources.time:
        words.append(f"at most {resources.time}")
    return ", ".join(words)


def encodable(text: str) -> str:
    """Return the text as valid UTF-8. Invalid bytes in a file name are shown as Python escapes.

    Python represents an invalid byte as a lone surrogate. In the C locale, this includes every byte of an umlaut.
    """
    if not SURROGATES.search(text):
        return text
    escaped = OTHER_SURROGATES.sub(_escape, text)
    return escaped.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def printable(text: str) -> str:
    """Return the text as one line. Every character that a terminal would act on becomes a Python escape."""
    return IN_A_LINE.sub(_escape, encodable(text))


def printable_lines(text: str) -> str:
    """Like `printable`, but for text with several lines. Line breaks and tabs are kept."""
    return IN_LINES.sub(_escape, encodable(text))


def inert(text: str) -> str:
    """Return the text as a cell that no spreadsheet evaluates.

    A formula, but not a number, gets a leading apostrophe.
    """
    if FORMULA.match(text) and not NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def jsonable(value: Any, convert: Callable[[str], str] = str) -> Any:
    """Convert a value to JSON types. NaN and infinities become null, bytes become base64, and times become ISO 8601.

    Strings and names are passed through `convert`. Data that will be read back need the default.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        result = {}
        for name, part in value.items():
            result[convert(str(name))] = jsonable(part, convert)
        return result
    if isinstance(value, list | tuple):
        return [jsonable(part, convert) for part in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, bool | int):
        return value
    return convert(str(value))
