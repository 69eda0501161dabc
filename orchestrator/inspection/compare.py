"""Comparison of two runs: configuration, environment, answers, and summary rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.inspection import results
from orchestrator.inspection.disclosure import recorded_settings
from orchestrator.inspection.search_results import is_search
from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store
from tasks.contract.objectives import Headline
from tasks.contract.verdict import Verdict

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """A field in which the runs differ. A run without this field has None."""

    name: str
    a: Any
    b: Any


@dataclass(frozen=True)
class Pair:
    """The summary rows for one metric and setting. A run without such a row has None."""

    metric: str
    setting: str
    a: Row | None
    b: Row | None


@dataclass(frozen=True)
class Comparison:
    """Two runs, the first called a and the second b."""

    runs: tuple[str, str]
    audits: tuple[str, str]
    fields: tuple[Difference, ...]  # of the configuration, by dotted name
    environment: tuple[Difference, ...]  # versions and commit at the time the runs were computed
    answers: tuple[Verdict | None, Verdict | None]
    rows: tuple[Pair, ...]
    headlines: tuple[Headline | None, Headline | None] = (None, None)  # the numbers that compare runs

    @property
    def shares_nothing(self) -> bool:
        """Whether the runs answer different questions.

        Their audits or the metrics of their effects differ, or they have rows but none in common.
        """
        has_a = any(pair.a is not None for pair in self.rows)
        has_b = any(pair.b is not None for pair in self.rows)
        has_shared = any(pair.a is not None and pair.b is not None for pair in self.rows)
        effects = {headline.row["metric"] for headline in self.headlines if headline is not None}
        return self.audits[0] != self.audits[1] or len(effects) > 1 or (has_a and has_b and not has_shared)


def compare(store: Store, a: Journal, b: Journal) -> Comparison:
    """Compare two runs, which may be incomplete.

    Raises SpecError for a sweep.
    """
    journals = (a, b)
    abouts = tuple(journal.about() for journal in journals)
    for journal, about in zip(journals, abouts, strict=True):
        if "cells" in about:
            cells = ", ".join(about["cells"])
            kind = "search" if is_search(about) else "sweep"
            raise SpecError(f"{journal.run} is a {kind}; compare two of its runs ({cells}), or read its own report")
    configs = [recorded_settings(about) | {"preset": about["preset"]} for about in abouts]
    environments = [{"commit": about.get("commit"), **about.get("versions", {})} for about in abouts]
    tables = []
    for journal in journals:
        rows = results.read(journal, store, "summary").table.to_pylist()
        tables.append({_name(row): row for row in rows})
    headlines = (results.headline(a, store), results.headline(b, store))
    return Comparison(
        runs=(a.run, b.run),
        audits=(abouts[0]["audit"], abouts[1]["audit"]),
        fields=_differences(*configs),
        environment=_differences(*environments),
        answers=(results.answer(a, store), results.answer(b, store)),
        rows=tuple(
            Pair(metric, setting, *(table.get((metric, setting)) for table in tables))
            for metric, setting in dict.fromkeys([*tables[0], *tables[1]])
        ),
        headlines=headlines,
    )


def _name(row: Row) -> tuple[str, str]:
    return row["metric"], row["setting"] or "{}"


def _differences(a: Row, b: Row) -> tuple[Difference, ...]:
    names = dict.fromkeys([*a, *b])
    return tuple(Difference(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name))
