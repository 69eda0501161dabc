"""Trials of a search as a table on the terminal, and what it recommends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator import rounding
from orchestrator.cli.terminal import paragraph, show, table
from orchestrator.cli.verdict import STYLES
from orchestrator.quantities import format_count

if TYPE_CHECKING:
    from orchestrator.inspection.search_results import Row, SearchAnswer

OBJECTIVES = ("memorization", "utility")


def display(rows: Sequence[Row], names: tuple[str, str] = OBJECTIVES, most: int | None = None) -> None:
    """Print trials, the first `most` of them, with both objectives under these names and their 95 % intervals."""
    shown = [_trial_row(row, names) for row in rows[:most]]
    if shown:
        table(shown, [name for name in shown[0] if any(row[name] for row in shown)], right=names)
    if len(rows) > len(shown):
        show(f"... and {format_count(len(rows) - len(shown), 'more trial')}")


def recommendation(answer: SearchAnswer) -> None:
    """Print what a search recommends."""
    paragraph(answer.sentence, STYLES[answer.tone], answer.answer.capitalize())


def _trial_row(row: Row, names: tuple[str, str]) -> dict[str, Any]:
    from orchestrator.inspection import search_results

    state = row["state"] if row["state"] != "finished" else ""
    early = f" at epoch {row['epochs']}" if row["state"] == "stopped early" else ""
    return {
        "trial": f"{row['trial']}",
        "choices": search_results.trial_name(row),
        "front": "front" if row["front"] else "",
        **{name: _value(search_results.value(row, each)) for name, each in zip(names, OBJECTIVES, strict=True)},
        "state": f"{state}{early}",
        "run": row["run"],
        "note": row["note"],
    }


def _value(value: dict[str, Any] | None) -> str:
    if value is None:
        return ""
    return (
        f"{rounding.format_row_value(value, 'estimate')} {rounding.format_interval(value['low'], value['high'])}"
    ).rstrip()
