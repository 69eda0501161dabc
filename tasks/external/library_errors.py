"""Errors of libraries, in one line."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.models import modules

LONGEST = 300  # characters of a foreign error


def one_line(error: Exception) -> str:
    """An error of a library in one line; only the last line of long ones, such as tracebacks in C++."""
    lines = list(_lines(error))
    text = lines[-1] if len(lines) > 3 else " ".join(lines)
    return f"{modules.kind(error)}: {text}"[:LONGEST]


def join_lines(error: Exception) -> str:
    """All lines of an error as one, without its type."""
    return " ".join(_lines(error))[:LONGEST]


def _lines(error: Exception) -> Iterator[str]:
    return (" ".join(line.split()) for line in str(error).splitlines() if line.strip())
