"""The list of audits, with their usual presets or those that repeat a paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.store import one_line
from orchestrator.cli.terminal import emit, say, table
from orchestrator.errors import EngramError
from orchestrator.quantities import format_count

if TYPE_CHECKING:
    from orchestrator.spec.audits import RegisteredAudit
    from tasks.contract.audit import Audit
    from tasks.contract.extras import Extra

SHOWN = 3  # number of presets shown per audit
TRIAL = "smoke"  # the preset that only shows whether an audit runs
OURS = "ours: "  # starts the description of a preset that repeats no part of a paper
Papers = Annotated[
    bool, typer.Option("--papers", help="List the presets that repeat tables and figures of the papers.")
]


def list_audits(papers: Papers = False, json: Json = False) -> None:
    """List the audits with their questions and usual presets.

    A preset with several cells runs as a sweep.
    """
    from orchestrator.planning.extras import extras_by_preset
    from tasks.contract.extras import install_command, missing

    entries = _load_audits()
    extras = {entry.name: extras_by_preset(entry) for entry in entries}
    if json:
        emit({"audits": [_shape(entry, extras[entry.name]) for entry in entries]})
        return
    if papers:
        list_papers(entries)
        return
    rows = []
    for entry in entries:
        names = usual_presets(entry.audit)
        labels = [_preset_label(entry.audit, name, missing(extras[entry.name][name])) for name in names]
        remaining = len(entry.audit.presets) - len(names)
        more = f", and {remaining} more" if remaining else ""
        rows.append({"name": entry.name, "question": entry.question, "presets": ", ".join(labels) + more})
    table(rows)
    say("engram show AUDIT shows its usual settings; engram show --papers lists the tables and figures of the papers")
    absent = missing(
        extra for audit_extras in extras.values() for required in audit_extras.values() for extra in required
    )
    if absent:
        say(f"not installed: {', '.join(extra.package for extra in absent)}; {install_command(absent)}")


def list_papers(entries: Iterable[RegisteredAudit]) -> None:
    """Print the presets of these audits that repeat a part of a paper."""
    rows = []
    for entry in entries:
        for name in paper_presets(entry.audit):
            cells = len(entry.audit.cells(name))
            rows.append(
                {
                    "audit": entry.name,
                    "preset": name,
                    "repeats": entry.audit.wording.repeats[name],
                    "runs": format_count(cells, "run"),
                }
            )
    if rows:
        table(rows)
        say("engram run AUDIT --preset PRESET runs one; with --dry-run, it only shows the expected time")
    else:
        say("no preset of this audit repeats a part of a paper")


def usual_presets(audit: Audit) -> tuple[str, ...]:
    """Return the presets that a new user sees: the first ones, without the trial run."""
    names = tuple(name for name in audit.presets if name != TRIAL)
    return (names or tuple(audit.presets))[:SHOWN]


def paper_presets(audit: Audit) -> tuple[str, ...]:
    """Return the presets that repeat a table, a figure or another part of a paper."""
    return tuple(name for name, text in audit.wording.repeats.items() if not text.startswith(OURS))


def _load_audits() -> list[RegisteredAudit]:
    from orchestrator.spec import audits

    entries = []
    for name in audits.names():
        try:
            entries.append(audits.find(name))
        except EngramError as error:  # an error in a third-party package must not hide the built-in audits
            say(f"engram: {one_line(error)}")
    return entries


def _shape(entry: RegisteredAudit, extras: Mapping[str, Sequence[Extra]]) -> dict[str, object]:
    presets = entry.audit.presets
    return {
        "name": entry.name,
        "question": entry.question,
        "presets": list(presets),
        "cells": {preset: len(entry.audit.cells(preset)) for preset in presets},
        "extras": {preset: [extra.package for extra in required] for preset, required in extras.items()},
    }


def _preset_label(audit: Audit, preset: str, absent: Iterable[Extra]) -> str:
    """Return the preset, with its number of cells and the packages that it lacks."""
    notes = []
    cells = len(audit.cells(preset))
    if cells > 1:
        notes.append(f"{cells} cells")
    notes += [f"needs {extra.package}" for extra in absent]
    return f"{preset} ({', '.join(notes)})" if notes else preset
