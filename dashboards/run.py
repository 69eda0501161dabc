"""A run as its page sees it: what was asked for, where it stands, its answer in words, and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from orchestrator import audits, results, status
from orchestrator.errors import EngramError, SpecError
from orchestrator.fields import coerce
from orchestrator.journal import Journal
from orchestrator.status import Status
from orchestrator.store import Store
from tasks.job import Verdict


@dataclass(frozen=True)
class Run:
    """One run, or a sweep with its cells. It only reads."""

    journal: Journal
    store: Store
    cells: tuple[Run, ...] = ()
    setting: Mapping[str, Any] | None = None  # of a cell, what is varied: its own folder may not know of the sweep

    @property
    def name(self) -> str:
        return self.journal.run

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """What was known when the run was made: audit, preset, setting, config, versions, commit, created."""
        about = self.journal.about()
        return about if self.setting is None else about | {"setting": self.setting}

    @cached_property
    def audit(self) -> str:
        return str(self.about["audit"])

    @cached_property
    def question(self) -> str:
        """What the audit asks; empty where the package that offers it has gone."""
        try:
            return audits.find(self.audit).question
        except EngramError:
            return ""

    @cached_property
    def config(self) -> Any:
        """The audit's config, typed; None where the audit has gone or has changed since."""
        try:
            return coerce(self.about["config"], audits.find(self.audit).audit.config, "config")
        except (EngramError, KeyError):
            return None

    @cached_property
    def status(self) -> Status:
        return status.status(self.journal, self.store)

    @cached_property
    def verdict(self) -> Verdict | None:
        return results.answer(self.journal, self.store)

    @cached_property
    def summary(self) -> list[dict[str, Any]]:
        """The summary as far as it is there, a mapping for each row; a sweep has its cells' rows, with what varies."""
        return list(self.table("summary").to_pylist())

    def table(self, name: str) -> pa.Table:
        """One of the run's tables as far as it is there; without columns where nothing is, or the run has none such."""
        try:
            return results.read(self.journal, self.store, name).table
        except SpecError:
            return pa.table({})


def open_run(store: Store, name: str) -> Run:
    """The run or sweep of this name."""
    journal = Journal(store.folder("runs", name))
    about = journal.about()
    names = about.get("cells", ())
    settings = about.get("settings") or [None] * len(names)
    journals = [Journal(store.folder("runs", cell)) for cell in names]
    return Run(
        journal, store, tuple(Run(cell, store, (), setting) for cell, setting in zip(journals, settings, strict=True))
    )
