"""Command output: tables and JSON on stdout, everything else on stderr.

Colours and live displays require a terminal and are turned off by NO_COLOR. Lines are wrapped at COLUMNS, or at the
terminal width.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TextIO

from orchestrator import rounding
from orchestrator.quantities import encodable, format_count, jsonable, printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 10_000  # columns if the output is not a terminal, so that nothing is truncated or wrapped in a file
USUAL = 80  # columns of a terminal of unknown width
GAP = 2  # spaces between columns
LONGEST_WORD = 24  # characters; longer words in a name may be broken
NUMBER = re.compile(r"[-+<\[( ]*\.?\d")  # also matches intervals, dates and times


def supports_colour(stream: TextIO) -> bool:
    """Return whether colours and live displays may be used: a capable terminal, and NO_COLOR is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns(stream: TextIO) -> int:
    """Return the maximum line width: COLUMNS if set, else the terminal width, else WIDE."""
    setting = os.environ.get("COLUMNS", "")
    if setting.isdecimal() and int(setting) > 0:
        return int(setting)
    if not stream.isatty():
        return WIDE
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL
    except (OSError, ValueError):
        return USUAL


def stdout() -> Console:
    return _console(sys.stdout)


def stderr() -> Console:
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    system: Literal["auto"] | None = "auto" if supports_colour(stream) else None
    return Console(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        color_system=system,
        width=columns(stream),
    )


def say(text: str) -> None:
    """Print lines on stderr."""
    print(printable_lines(text), file=sys.stderr, flush=True)  # noqa: T201


def show(text: str) -> None:
    """Print lines on stdout."""
    _write(printable_lines(text))


def _write(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def show_check(is_ok: bool | None, text: str) -> None:
    """Print one line about a check on stdout, marked as passed (True), as a notice (None) or as failed (False)."""
    mark, style = {True: ("ok", "green"), None: ("--", "yellow"), False: ("BAD", "bold red")}[is_ok]
    console = stdout()
    console.print(f"{mark:<4}", style=style, end="")
    console.print(printable(text))


def emit(value: Any) -> None:
    """Print the command's result as JSON on stdout."""
    _write(json.dumps(jsonable(value, encodable), indent=2, allow_nan=False))


def paragraph(text: str, style: str = "", lead: str = "", prefix: str = "") -> None:
    """Print text on stdout, wrapped between words on a terminal. The `lead` that follows `prefix` is styled."""
    lines = wrap_text(printable_lines(text), columns(sys.stdout))
    prefix = printable_lines(prefix)
    lead = printable_lines(lead)
    if lead and lines[0].startswith(prefix + lead):
        lines[0] = f"{prefix}{_apply_style(lead, style)}{lines[0][len(prefix + lead) :]}"
    _write("\n".join(lines))


def _apply_style(text: str, style: str) -> str:
    """Apply a rich style to the text. Returns it unchanged if stdout does not support colours."""
    if not supports_colour(sys.stdout):
        return text
    from rich.text import Text

    console = stdout()
    with console.capture() as captured:
        console.print(Text(text, style), end="", soft_wrap=True)
    return captured.get()


def table(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None, right_aligned: Collection[str] = ()
) -> None:
    """Print rows that share the same columns as a table on stdout. Missing values are blank.

    Numeric columns, and those in `right_aligned`, are right-aligned.
    """
    names = list(names or (rows[0] if rows else ()))
    numeric: set[str] = set()
    cells = []
    for row in rows:
        numeric.update(name for name in names if isinstance(row.get(name), int | float))
        cells.append({name: cell(row.get(name)) for name in names})
    _show_table([cells], {*numeric, *right_aligned})


def filled_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns with at least one non-empty value, in order of first appearance."""
    filled: set[str] = set()
    for row in rows:
        filled.update(name for name, value in row.items() if value)
    columns = []
    for name in dict.fromkeys(chain.from_iterable(rows)):
        if name in filled:
            columns.append(name)
    return columns


def _show_table(forms: Sequence[Sequence[Mapping[str, str]]], right_aligned: Collection[str]) -> None:
    """Print the form of the same rows that fits in the fewest lines, or the last form, stacked, if none fits."""
    width = columns(sys.stdout)
    forms = [list(map(_printable_row, rows)) for rows in forms]
    fitting = [lines for rows in forms if (lines := align_columns(rows, right_aligned, width)) is not None]
    if fitting:
        table_lines = min(fitting, key=len)
    else:
        table_lines = stack_rows(forms[-1], width)
    if fitting and table_lines:
        table_lines[0] = _apply_style(table_lines[0], "bold")
    _write("\n".join(table_lines))


def _printable_row(row: Mapping[str, str]) -> dict[str, str]:
    return {name: printable(text) for name, text in row.items()}


def cell(value: Any) -> str:
    """Format a value for a table cell: four significant digits, and an empty string for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(jsonable(value))
    return printable(str(value))


def summary(rows: Sequence[Mapping[str, Any]], leading_columns: Sequence[str] = ()) -> None:
    """Print the rows of a `summary` table: estimate, interval, n and unit, null, p, published value.

    `leading_columns` names additional columns to print first, such as the varied fields of a sweep.
    """
    table_rows = []
    for row in rows:
        table_rows.append(
            {name: cell(row.get(name)) for name in leading_columns}
            | {"metric": row["metric"], "setting": setting_text(row.get("setting"))}
            | numbers(row)
        )
    names = filled_columns(table_rows)
    wide = [{name: row[name] for name in names} for row in table_rows]
    narrow = [_merge_setting(row) for row in wide]
    _show_table([wide, narrow], {"estimate", "null", "p", "published"})


def numbers(row: Mapping[str, Any]) -> dict[str, str]:
    """Format the numbers in a summary row by column, with as many digits as the interval supports."""
    return {
        "estimate": rounding.format_row_value(row, "estimate"),
        "95 % interval": rounding.format_row_interval(row),
        "n": "" if row.get("n") is None else format_count(row["n"], row.get("unit") or ""),
        "null": rounding.format_row_value(row, "null"),
        "p": rounding.format_p_value(row.get("p_value")),
        "published": rounding.format_row_value(row, "published"),
    }


def _merge_setting(row: Mapping[str, str]) -> dict[str, str]:
    """Return the row with its setting appended to the metric, for narrow terminals."""
    varied = row.get("setting")
    if varied:
        metric = f"{row['metric']} ({varied})"
    else:
        metric = row["metric"]
    result = {}
    for name, text in row.items():
        if name != "setting":
            result[name] = metric if name == "metric" else text
    return result


def setting_text(setting: str | None) -> str:
    """Format the varied values in the setting (JSON) of a summary row."""
    return rounding.format_setting(setting, cell)


@dataclass(frozen=True)
class Column:
    """One table column: its name, its cell texts and their alignment."""

    name: str
    cells: tuple[str, ...]
    is_right_aligned: bool

    @property
    def natural(self) -> int:
        return max(map(width_of, (self.name, *self.cells)))

    @property
    def narrowest(self) -> int:
        words = [word for text in (self.name, *self.cells) for word in _unbroken(text)]
        return max(map(width_of, words), default=0)


def align_columns(rows: Sequence[Mapping[str, str]], right_aligned: Collection[str], width: int) -> list[str] | None:
    """Return the header and the rows as lines of at most `width` characters, or None if they do not fit.

    The columns are the keys of the rows. Those listed in `right_aligned` are right-aligned.
    """
    names = list(rows[0]) if rows else []
    columns = []
    for name in names:
        columns.append(Column(name, tuple(row[name] for row in rows), name in right_aligned))
    widths = _widths(columns, width)
    if widths is None:
        return None
    cells = [names]
    for row in rows:
        cells.append([row[name] for name in names])
    return _line_up(cells, columns, widths)


def stack_rows(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Format each row as a paragraph: the first value, then all other non-empty values with their names."""
    stacked = []
    for row in rows:
        (name, first), *rest = row.items()
        stacked += wrap_text(f"{name} {first}" if NUMBER.match(first) else first, width, "  ")
        line = ""
        for part in [f"{name} {text}" for name, text in rest if text]:
            if line and width_of(line) + GAP + width_of(part) + 2 > width:
                stacked += wrap_text(f"  {line}", width, "    ")
                line = ""
            line = f"{line}  {part}" if line else part
        if line:
            stacked += wrap_text(f"  {line}", width, "    ")
    return stacked


def width_of(text: str) -> int:
    """Return the number of terminal columns that the text occupies. A Chinese character occupies two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap_text(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap text between words to lines of at most `width` columns. All lines but the first are indented by `indent`."""
    if width_of(text) <= width:
        return [text]
    wrapped: list[str] = []
    line = text[: len(text) - len(text.lstrip())]
    for word in _split(text):
        if line.strip():
            longer = f"{line} {word}"
        else:
            longer = line + word
        if line.strip() and width_of(longer) > width:
            wrapped.append(line)
            longer = indent + word
        while width_of(longer) > width and len(longer) > len(indent) + 1:
            fits = next(
                position
                for position in range(len(longer), len(indent), -1)
                if width_of(longer[:position]) <= width or position == len(indent) + 1
            )
            wrapped.append(longer[:fits])
            longer = indent + longer[fits:]
        line = longer
    return [*wrapped, line]


def _unbroken(text: str) -> list[str]:
    """Return the unbreakable parts of a cell: a whole number, interval or date, otherwise single words."""
    if NUMBER.match(text) and not re.search("[A-Za-z]{2}", text):
        return [text]
    return _words(text)


def _words(text: str) -> list[str]:
    return [word[:LONGEST_WORD] for word in _split(text)]


def _split(text: str) -> list[str]:
    """Split text into words, keeping a percent sign with its number."""
    if text.strip():
        return re.split(r"\s+(?!%)", text.strip())
    return []


def _widths(columns: Sequence[Column], width: int) -> list[int] | None:
    """Return the column widths, shrinking the widest ones until all fit. Returns None if they cannot fit."""
    widths = [column.natural for column in columns]
    excess = sum(widths) + GAP * (len(widths) - 1) - width
    minima = []
    if excess > 0:
        minima = [column.narrowest for column in columns]
    while excess > 0:
        free = [index for index in range(len(widths)) if widths[index] > minima[index]]
        if not free:
            return None
        widest = max(free, key=lambda index: widths[index])
        widths[widest] -= 1
        excess -= 1
    return widths


def _line_up(rows: Sequence[Sequence[str]], columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    aligned = []
    for cells in rows:
        parts = [wrap_text(text, width) for text, width in zip(cells, widths, strict=True)]
        for index in range(max(map(len, parts), default=0)):
            pieces = []
            for part, width, column in zip(parts, widths, columns, strict=True):
                pieces.append(_pad(part[index] if index < len(part) else "", width, column.is_right_aligned))
            aligned.append((" " * GAP).join(pieces).rstrip())
    return aligned


def _pad(text: str, width: int, is_right_aligned: bool) -> str:
    blank = " " * (width - width_of(text))
    if is_right_aligned:
        return blank + text
    return text + blank
