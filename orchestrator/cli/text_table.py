"""Rows as text, at the width of a terminal.

In columns where they fit: names wrap between words, numbers never. Else stacked: one row below another, each with its
values by name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

GAP = 2  # blanks between columns
LONGEST_WORD = 24  # characters: a longer word of a name may be broken
NUMBER = re.compile(r"[-+<\[( ]*\.?\d")  # also an interval, a date, a time


@dataclass(frozen=True)
class Column:
    """A column: its name, the texts of its cells, whether they stand to the right, and the narrowest it may be."""

    name: str
    cells: tuple[str, ...]
    right: bool

    @property
    def natural(self) -> int:
        return max(map(width_of, (self.name, *self.cells)))

    @property
    def narrowest(self) -> int:
        words = [word for text in (self.name, *self.cells) for word in _unbroken(text)]
        return max(map(width_of, words), default=0)


def align_columns(rows: Sequence[Mapping[str, str]], right: Collection[str], width: int) -> list[str] | None:
    """The names of the columns and the rows, as lines of at most `width` characters; None where they cannot be.

    The columns are the keys of the rows; those named by `right` are right-aligned.
    """
    columns = [Column(name, tuple(row[name] for row in rows), name in right) for name in (rows[0] if rows else ())]
    widths = _widths(columns, width)
    if widths is None:
        return None
    cells = [
        [column.name for column in columns],
        *([column.cells[at] for column in columns] for at in range(len(rows))),
    ]
    return _line_up(cells, columns, widths)


def stack_rows(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Each row in a paragraph: its first value, then all others by name, without the empty ones."""
    drawn = []
    for row in rows:
        (name, first), *rest = row.items()
        drawn += wrap_text(f"{name} {first}" if NUMBER.match(first) else first, width, "  ")
        line = ""
        for part in [f"{name} {text}" for name, text in rest if text]:
            if line and width_of(line) + GAP + width_of(part) + 2 > width:
                drawn += wrap_text(f"  {line}", width, "    ")
                line = ""
            line = f"{line}  {part}" if line else part
        if line:
            drawn += wrap_text(f"  {line}", width, "    ")
    return drawn


def width_of(text: str) -> int:
    """The number of a terminal's columns that the text takes: a Chinese character takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap_text(text: str, width: int, indent: str = "") -> list[str]:
    """The text in lines of at most `width` columns, broken between words; `indent` begins all but the first."""
    if width_of(text) <= width:
        return [text]
    drawn: list[str] = []
    line = text[: len(text) - len(text.lstrip())]
    for word in _split(text):
        longer = f"{line} {word}" if line.strip() else line + word
        if line.strip() and width_of(longer) > width:
            drawn.append(line)
            longer = indent + word
        while width_of(longer) > width and len(longer) > len(indent) + 1:
            fits = next(
                at
                for at in range(len(longer), len(indent), -1)
                if width_of(longer[:at]) <= width or at == len(indent) + 1
            )
            drawn.append(longer[:fits])
            longer = indent + longer[fits:]
        line = longer
    return [*drawn, line]


def _unbroken(text: str) -> list[str]:
    """The parts of a cell that stay on one line: a number, an interval or a date as a whole, else words."""
    return [text] if NUMBER.match(text) and not re.search("[A-Za-z]{2}", text) else _words(text)


def _words(text: str) -> list[str]:
    return [word[:LONGEST_WORD] for word in _split(text)]


def _split(text: str) -> list[str]:
    """The words of a text; a percent sign stays with its number."""
    return re.split(r"\s+(?!%)", text.strip()) if text.strip() else []


def _widths(columns: Sequence[Column], width: int) -> list[int] | None:
    """The width of each column, the widest ones narrowed until all fit; None where they cannot."""
    widths = [column.natural for column in columns]
    excess = sum(widths) + GAP * (len(widths) - 1) - width
    least = [column.narrowest for column in columns] if excess > 0 else []
    while excess > 0:
        free = [at for at in range(len(widths)) if widths[at] > least[at]]
        if not free:
            return None
        widest = max(free, key=lambda at: widths[at])
        widths[widest] -= 1
        excess -= 1
    return widths


def _line_up(rows: Sequence[Sequence[str]], columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    drawn = []
    for cells in rows:
        parts = [wrap_text(text, width) for text, width in zip(cells, widths, strict=True)]
        for at in range(max(map(len, parts), default=0)):
            pieces = [
                _pad(part[at] if at < len(part) else "", width, column.right)
                for part, width, column in zip(parts, widths, columns, strict=True)
            ]
            drawn.append((" " * GAP).join(pieces).rstrip())
    return drawn


def _pad(text: str, width: int, right: bool) -> str:
    blank = " " * (width - width_of(text))
    return blank + text if right else text + blank
