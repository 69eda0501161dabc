"""A run as its page sees it: what was asked for, where it stands, its answer in words, and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from orchestrator.errors import EngramError, SpecError
from orchestrator.inspection import results, status
from orchestrator.inspection.disclosure import Disclosure, typed
from orchestrator.inspection.status import Status
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits
from orchestrator.store import Store
from tasks.audit import Meaning, Verdict


@dataclass(frozen=True)
class Run:
    """One run, or a sweep with its cells, as far as the page's readers may know of it. It only reads."""

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
        """The audit's config as it may be told, typed; None where the audit has gone or has changed since."""
        return typed(self.about)

    @cached_property
    def private_config(self) -> Any:
        """The audit's whole config, typed, to compute with and not to be told; None where the audit has changed."""
        return typed(Journal(self.journal.folder).about())

    @cached_property
    def withholds(self) -> bool:
        """Whether the run, or one of a sweep's, has something in its config that this page does not tell."""
        return any(each.private_config is None or each.private_config != each.config for each in self.cells or (self,))

    @cached_property
    def status(self) -> Status:
        return status.status(self.journal, self.store)

    @cached_property
    def verdict(self) -> Verdict | None:
        return results.answer(self.journal, self.store)

    @cached_property
    def meaning(self) -> Meaning | None:
        """What its audit says that the answer means; None where there is no answer."""
        return None if self.verdict is None else audits.find(self.audit).audit.answers[self.verdict.answer]

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


def open_run(store: Store, name: str, disclosure: Disclosure | None = None) -> Run:
    """The run or sweep of this name, without what is private in it unless the disclosure says otherwise."""
    journal = (disclosure or Disclosure()).journal(store.folder("runs", name))
    about = journal.about()
    names = about.get("cells", ())
    settings = about.get("settings") or [None] * len(names)
    journals = [journal.beside(cell) for cell in names]
    return Run(
        journal, store, tuple(Run(cell, store, (), setting) for cell, setting in zip(journals, settings, strict=True))
    )
