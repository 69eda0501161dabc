"""The view of a run that its page may show: configuration, status, verdict and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from orchestrator.errors import SpecError
from orchestrator.inspection import answers, results, search_results, status
from orchestrator.inspection.disclosure import Disclosure, typed_config
from orchestrator.inspection.search_results import SearchResults, TrialOf
from orchestrator.inspection.status import Status
from orchestrator.run_folder import notes
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.notes import Details
from orchestrator.spec import audits
from orchestrator.store import Store
from tasks.contract.certificate import Certificate
from tasks.contract.crosswalk import CAVEAT, describe_controls
from tasks.contract.objectives import Headline, Objectives
from tasks.contract.summaries import blank_weak_interval
from tasks.contract.verdict import Meaning, Verdict


@dataclass(frozen=True)
class Run:
    """Read-only view of a run, sweep or search without private data. `cells` are the runs of a sweep or search."""

    journal: Journal
    store: Store
    cells: tuple[Run, ...] = ()
    setting: Mapping[str, Any] | None = None  # the cell's varied fields; its own folder may not know the sweep

    @property
    def name(self) -> str:
        return self.journal.run

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """The content of `run.json`: audit, preset, setting, config, versions, commit, created, asked."""
        about = self.journal.about()
        if self.setting is None:
            return about
        return about | {"setting": self.setting}

    @cached_property
    def audit(self) -> str:
        return str(self.about["audit"])

    @cached_property
    def question(self) -> str:
        """The audit's question. Empty if its package is not installed."""
        registered = audits.find_installed(self.audit)
        if registered is None:
            return ""
        return registered.question

    @cached_property
    def config(self) -> Any:
        """The audit's configuration without private data.

        None if the audit is not installed or has changed since the run.
        """
        return typed_config(self.about)

    @cached_property
    def private_config(self) -> Any:
        """The complete configuration, not for display.

        None if the audit is not installed or has changed since the run.
        """
        return typed_config(Journal(self.journal.folder).about())

    @cached_property
    def withholds(self) -> bool:
        """Whether the configuration of the run or of a cell contains private values, which the page does not show."""
        return any(run.private_config is None or run.private_config != run.config for run in self.cells or (self,))

    @cached_property
    def status(self) -> Status:
        return status.status(self.journal, self.store)

    @cached_property
    def search(self) -> SearchResults | None:
        """The trials and answer of a search, whose cells are the runs of its trials. None for a run or sweep."""
        if search_results.is_search(self.about):
            return search_results.read_search(self.journal)
        return None

    @cached_property
    def trial_of(self) -> tuple[TrialOf, ...]:
        """The search trials that this run belongs to."""
        return search_results.parent_searches(self.journal)

    @cached_property
    def objectives(self) -> Objectives | None:
        """The search objectives of this audit. None if the audit is not installed or cannot be searched."""
        registered = audits.find_installed(self.audit)
        if registered is None:
            return None
        return registered.audit.objectives

    @cached_property
    def verdict(self) -> Verdict | None:
        return results.answer(self.journal, self.store)

    @cached_property
    def headline(self) -> Headline | None:
        """The number that compares runs. None if the summary lacks it, and for a sweep."""
        return results.headline(self.journal, self.store)

    @cached_property
    def effect(self) -> str:
        """The number that compares runs, with its unit and interval. For a sweep, the range over its cells."""
        return answers.effect(self.journal, self.store)

    @cached_property
    def details(self) -> Details:
        """Title, auditor, client and purpose printed on the run's certificate."""
        return notes.read_details(self.journal.folder)

    @cached_property
    def certificate(self) -> Certificate | None:
        """The answer for readers without a machine-learning background. None if there is no answer."""
        return results.certificate(self.journal, self.store)

    @cached_property
    def meaning(self) -> Meaning | None:
        """The audit's definition of this run's answer. None if there is no answer."""
        if self.verdict is None:
            return None
        return self.meaning_of(self.verdict.answer)

    def meaning_of(self, answer: str) -> Meaning:
        """Return the audit's definition of an answer."""
        return audits.find(self.audit).audit.wording.answers.get(answer, Meaning(""))

    @cached_property
    def controls(self) -> str:
        """The controls for which the audit provides evidence. Empty if there are none or the audit is not installed."""
        registered = audits.find_installed(self.audit)
        if registered is None:
            controls = ""
        else:
            controls = describe_controls(registered.audit.wording.attacks)
        if controls:
            return f"{controls}. {CAVEAT}"
        return ""

    @cached_property
    def summary(self) -> list[dict[str, Any]]:
        """The stored summary rows. Intervals from samples that are too small are removed.

        For a sweep, rows from all cells with the varied fields added.
        """
        result = []
        for row in self.table("summary").to_pylist():
            result.append(dict(blank_weak_interval(row)))
        return result

    def table(self, name: str) -> pa.Table:
        """Read one of the run's stored tables. Returns a table without columns if no rows are stored."""
        try:
            return results.read(self.journal, self.store, name).table
        except SpecError:
            return pa.table({})


def open_run(store: Store, name: str, disclosure: Disclosure | None = None) -> Run:
    """Open a run, sweep or search by name. Private data are left out unless `disclosure` allows them."""
    journal = (disclosure or Disclosure()).journal(store.folder("runs", name))
    about = journal.about()
    names = about.get("cells", ())
    settings = about.get("settings") or [None] * len(names)
    journals = [journal.sibling(cell) for cell in names]
    return Run(
        journal, store, tuple(Run(cell, store, (), setting) for cell, setting in zip(journals, settings, strict=True))
    )
