"""The page that compares two runs, written as one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dashboards import document, provenance
from dashboards.document import add_seal
from dashboards.provenance import Provenance
from dashboards.run import Run, open_run
from orchestrator.inspection.compare import Comparison, Difference, Pair, compare
from orchestrator.inspection.disclosure import Disclosure
from orchestrator.store import Store, stored_keys


def draw(store: Store, runs: tuple[str, str], path: Path) -> None:
    """Write the comparison page for two runs to this file.

    Raises SpecError for a sweep, and OSError if the file cannot be written.
    """
    disclosure = Disclosure()
    a, b = (open_run(store, run, disclosure) for run in runs)
    comparison = compare(store, a.journal, b.journal)
    planned_keys = [run.journal.tasks().keys() for run in (a, b)]
    context = {
        "comparison": comparison,
        "sides": [_side(letter, run) for letter, run in zip("ab", (a, b), strict=True)],
        "fields": comparison.fields,
        "made": list(_environment_differences(comparison, *(_provenance(run) for run in (a, b)))),
        "shared": len(planned_keys[0] & planned_keys[1]),
        "pairs": [(pair, _difference(pair)) for pair in comparison.rows],
    }
    document.write(path, add_seal(document.render("comparison.html", **context), [a, b], path.name))


def _side(letter: str, run: Run) -> dict[str, Any]:
    return {"letter": letter, "run": run, "status": run.status, "verdict": run.verdict}


def _provenance(run: Run) -> Provenance:
    existing_keys = stored_keys(run.store)
    return provenance.gather(run.store, (key for key in run.journal.tasks() if key in existing_keys))


def _environment_differences(comparison: Comparison, a: Provenance, b: Provenance) -> Iterator[Difference]:
    """Yield the environment differences between the results, or between the runs if there are no results."""
    if not (a.ways and b.ways):
        yield from comparison.environment
        return
    sides = [_values(side) for side in (a, b)]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        values = [side.get(name, "not recorded") for side in sides]
        if values[0] != values[1]:
            yield Difference(name, *values)


def _values(run_provenance: Provenance) -> Mapping[str, str]:
    """Return the value of each field. Several values are joined if results were computed in different environments."""
    fields: dict[str, dict[str, None]] = {}
    for way in run_provenance.ways:
        for name, value in way.fields.items():
            fields.setdefault(name, {})[value] = None
    return {name: " and ".join(values) for name, values in fields.items()}


def _difference(pair: Pair) -> float | None:
    """Return the second estimate minus the first. Returns None if either is missing."""
    estimates = [None if row is None else row["estimate"] for row in (pair.a, pair.b)]
    return None if estimates[0] is None or estimates[1] is None else estimates[1] - estimates[0]
