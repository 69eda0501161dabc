"""Output of a comparison of two runs, as JSON and as tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from orchestrator.cli.terminal import cell, numbers, paragraph, setting_text, show, table
from orchestrator.inspection.compare import Comparison, Difference, Row


def shape(comparison: Comparison) -> dict[str, Any]:
    """The JSON of a comparison: runs, audits, differing fields and environment, answers, and pairs of rows."""
    return dataclasses.asdict(comparison)


def display(comparison: Comparison) -> None:
    """Print the comparison on stdout: names, differences, the summaries, the answers."""
    for letter, run, audit in zip("ab", comparison.runs, comparison.audits, strict=True):
        show(f"{letter}  {run} ({audit})")
    show("")
    differing = [*_differing("config", comparison.fields), *_differing("made with", comparison.environment)]
    table(differing or [{"": "they differ neither in their config nor in what they were made with"}])
    show("")
    rows = [
        {"metric": pair.metric, "setting": setting_text(pair.setting)}
        | _summary_columns("a", pair.a)
        | _summary_columns("b", pair.b)
        for pair in comparison.rows
    ]
    table(rows, right=("a", "b", "a: null", "b: null"))
    show("")
    for letter, answer in zip("ab", comparison.answers, strict=True):
        paragraph(f"{letter}  {'no answer yet' if answer is None else answer.sentence}")


def _differing(kind: str, differences: tuple[Difference, ...]) -> Iterator[dict[str, Any]]:
    for difference in differences:
        yield {"differs": kind, "name": difference.name, "a": cell(difference.a), "b": cell(difference.b)}


def _summary_columns(letter: str, row: Row | None) -> dict[str, Any]:
    known = row or {}
    texts = numbers(known)
    return {
        letter: texts["estimate"],
        f"{letter}: 95 % interval": texts["95 % interval"],
        f"{letter}: n": known.get("n"),
        f"{letter}: null": texts["null"],
    }
