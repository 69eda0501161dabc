"""Output of commands: tables and JSON on stdout, everything else on stderr.

Colour and live displays only on a terminal, and not with NO_COLOR.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.counted import counted
from orchestrator.jsonable import jsonable

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 10_000  # columns if the output is not a terminal: nothing is cut or folded in a file


def stdout() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, soft_wrap=False, width=None if sys.stdout.isatty() else WIDE)


def stderr() -> Console:
    from rich.console import Console

    width = None if sys.stderr.isatty() else WIDE
    return Console(stderr=True, highlight=False, markup=False, emoji=False, width=width)


def say(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def show(text: str) -> None:
    """Print a line on stdout."""
    print(text, flush=True)  # noqa: T201


def emit(value: Any) -> None:
    """Print the command's result as JSON on stdout."""
    show(json.dumps(jsonable(value), indent=2, allow_nan=False))


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> None:
    """Print rows with equal columns as a table on stdout; numbers are right-aligned, missing values are blank."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = list(columns or (rows[0] if rows else ()))
    drawn = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, header_style="bold")
    for name in names:
        numbers = any(isinstance(row.get(name), int | float) for row in rows)
        drawn.add_column(Text(name), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell(row.get(name))) for name in names))
    console = stdout()
    with console.capture() as captured:
        console.print(drawn)
    show("\n".join(line.rstrip() for line in captured.get().strip("\n").splitlines()))


def cell(value: Any) -> str:
    """A value in a table: four significant digits; empty for None and NaN."""
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
    return str(value)


def summary(rows: Sequence[Mapping[str, Any]], before: Sequence[str] = ()) -> None:
    """Print the rows of a `summary` table: estimate, its interval, n and unit, null, p, published.

    `before` names further columns, which come first: the varied fields of a sweep.
    """
    shown = []
    for row in rows:
        shown.append(
            {name: row.get(name) for name in before}
            | {
                "metric": row["metric"],
                "setting": setting_text(row.get("setting")),
                "estimate": row["estimate"],
                "95 % interval": interval(row),
                "n": "" if row.get("n") is None else counted(row["n"], row.get("unit") or ""),
                "null": row.get("null"),
                "p": row.get("p_value"),
                "published": row.get("published"),
            }
        )
    kept = [name for name in (shown[0] if shown else ()) if any(cell(row[name]) for row in shown)]
    table(shown, kept)


def interval(row: Mapping[str, Any]) -> str:
    """A summary row's interval; empty if it has none."""
    low, high = row.get("low"), row.get("high")
    return "" if low is None or high is None else f"[{cell(low)}, {cell(high)}]"


def setting_text(setting: str | None) -> str:
    """The varied values in a summary row's setting (JSON)."""
    try:
        return ", ".join(f"{name}={cell(value)}" for name, value in json.loads(setting or "{}").items())
    except (ValueError, AttributeError):
        return str(setting)
