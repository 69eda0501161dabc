"""The page of two runs side by side: one file, like a run's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dashboards import document, provenance
from dashboards.provenance import Provenance
from dashboards.run import Run, open_run
from orchestrator.inspection.compare import Comparison, Difference, Pair, compare
from orchestrator.inspection.disclosure import Disclosure
from orchestrator.store import Store


def draw(store: Store, runs: tuple[str, str], path: Path) -> None:
    """Write the page of two runs into this file; SpecError for a sweep, OSError where it cannot be written."""
    disclosure = Disclosure()
    a, b = (open_run(store, run, disclosure) for run in runs)
    found = compare(store, a.journal, b.journal)
    planned = [each.journal.tasks().keys() for each in (a, b)]
    context = {
        "found": found,
        "sides": [_side(letter, run) for letter, run in zip("ab", (a, b), strict=True)],
        "fields": found.fields,
        "made": list(_made(found, *(_provenance(run) for run in (a, b)))),
        "shared": len(planned[0] & planned[1]),
        "pairs": [(pair, _difference(pair)) for pair in found.rows],
    }
    document.write(path, document.render("comparison.html", **context))


def _side(letter: str, run: Run) -> dict[str, Any]:
    return {"letter": letter, "run": run, "status": run.status, "verdict": run.verdict}


def _provenance(run: Run) -> Provenance:
    stored = run.store.keys()
    return provenance.gather(run.store, (key for key in run.journal.tasks() if key in stored))


def _made(found: Comparison, a: Provenance, b: Provenance) -> Iterator[Difference]:
    """With what the results were computed, where that differs; before there are any, with what the runs were made."""
    if not (a.ways and b.ways):
        yield from found.environment
        return
    sides = [_values(each) for each in (a, b)]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        values = [side.get(name, "not recorded") for side in sides]
        if values[0] != values[1]:
            yield Difference(name, *values)


def _values(made: Provenance) -> Mapping[str, str]:
    """Each field with its value, or with its values where results were computed in several ways."""
    found: dict[str, dict[str, None]] = {}
    for way in made.ways:
        for name, value in way.fields.items():
            found.setdefault(name, {})[value] = None
    return {name: " and ".join(values) for name, values in found.items()}


def _difference(pair: Pair) -> float | None:
    """The second estimate minus the first; None where one of them is not there."""
    estimates = [None if row is None else row["estimate"] for row in (pair.a, pair.b)]
    return None if estimates[0] is None or estimates[1] is None else estimates[1] - estimates[0]
