"""Two runs side by side, as a program reads them and as a person does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from orchestrator.cli.terminal import cell, interval, setting_text, show, table
from orchestrator.inspection.compare import Comparison, Difference, Row


def shape(found: Comparison) -> dict[str, Any]:
    """The JSON of a comparison: runs, audits, fields and environment that differ, answers, and rows in pairs."""
    return dataclasses.asdict(found)


def display(found: Comparison) -> None:
    """The comparison on stdout: names, what differs, the summaries, the answers."""
    for letter, run, audit in zip("ab", found.runs, found.audits, strict=True):
        show(f"{letter}  {run} ({audit})")
    show("")
    differing = [*_told("config", found.fields), *_told("made with", found.environment)]
    table(differing or [{"": "they differ neither in their config nor in what they were made with"}])
    show("")
    rows = [
        {"metric": pair.metric, "setting": setting_text(pair.setting)} | _beside("a", pair.a) | _beside("b", pair.b)
        for pair in found.rows
    ]
    table(rows)
    show("")
    for letter, answer in zip("ab", found.answers, strict=True):
        show(f"{letter}  {'no answer yet' if answer is None else answer.sentence}")


def _told(kind: str, differences: tuple[Difference, ...]) -> Iterator[dict[str, Any]]:
    for each in differences:
        yield {"differs": kind, "name": each.name, "a": cell(each.a), "b": cell(each.b)}


def _beside(letter: str, row: Row | None) -> dict[str, Any]:
    known = row or {}
    return {
        letter: known.get("estimate"),
        f"{letter}: 95 % interval": interval(known),
        f"{letter}: n": known.get("n"),
        f"{letter}: null": known.get("null"),
    }
