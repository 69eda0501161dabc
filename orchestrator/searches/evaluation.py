"""Evaluation of a trial: one run of the audit in the calling process."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.errors import EngramError, Held, SpecError
from orchestrator.inspection import results
from orchestrator.inspection.search_results import CUT, SEARCHED
from orchestrator.run_folder.journal import Journal
from orchestrator.runs import lifecycle
from orchestrator.runs.report import Report
from orchestrator.scheduling.driver import Observer
from orchestrator.searches.definition import EPOCHS, SEED, Search, find_value
from orchestrator.searches.trials import FAILED, FINISHED, REFUSED, Trial, Value
from orchestrator.spec import resolve
from orchestrator.spec.options import Execution
from orchestrator.store import Store, open_store
from tasks.contract.objectives import Objective

RETRY_SECONDS = 1.0  # seconds between checks of a run computed by another trial; two trials may be the same training


@dataclass(frozen=True)
class Evaluation:
    """Everything needed to evaluate trials in any process: search, store location, execution and environment."""

    search: Search
    location: str
    execution: Execution
    environment: Mapping[str, str]

    def enter_environment(self) -> Store:
        """Apply the environment of the search to this process and return the store."""
        os.environ.update(self.environment)
        return open_store(self.location)

    def trial(
        self,
        store: Store,
        number: int,
        choices: Mapping[str, Any],
        epochs: int | None = None,
        seed: int | None = None,
        part: str = SEARCHED,
        observe: Observer | None = None,
    ) -> Trial:
        """Evaluate the trial with these choices and, if given, other epochs and another seed.

        The trial is refused if the fields are inconsistent, failed if the run failed, and interrupted if the run cannot
        continue for now, for example because the disk is full. Raises StoreError if the results of the run cannot be
        read.
        """
        trial = Trial(number, part, dict(choices), REFUSED, epochs=epochs, seed=seed)
        try:
            cells = resolve.pin_cells([self.search.cell(choices, epochs, seed)], store.digests())
            report = self._run(store, cells, observe)
        except SpecError as error:
            return replace(trial, note=str(error))
        except EngramError as error:  # Ray Tune would retry forever
            return replace(trial, state=CUT, note=str(error))
        trial = replace(trial, run=report.run, epochs=epochs or find_value(cells[0].config, EPOCHS))
        trial = replace(trial, seed=find_value(cells[0].config, SEED))
        if report.state in ("interrupted", "paused"):
            return replace(trial, state=CUT, note=report.note)
        summary = results.summary(Journal(store.folder("runs", report.run)), store).table
        if report.state == "failed" or not summary.num_rows:
            first_error = ""
            if report.failures:
                first_error = f": {report.failures[0][2]}"
            return replace(trial, state=FAILED, note=f"{report.jobs['failed']} jobs failed{first_error}")
        objectives = self.search.objectives
        values = []
        for objective in (objectives.memorization, objectives.utility):
            values.append(_value(objective, cells[0].config, summary))
        missing_names = []
        for objective, value in zip((objectives.memorization, objectives.utility), values, strict=True):
            if value is None:
                missing_names.append(objective.name)
        note = ""
        if missing_names:
            note = f"its summary has no {' and no '.join(missing_names)}"
        return replace(
            trial, state=FAILED if missing_names else FINISHED, memorization=values[0], utility=values[1], note=note
        )

    def _run(self, store: Store, cells: list[resolve.Cell], observe: Observer | None) -> Report:
        while True:
            try:
                return lifecycle.start(cells, store, self.execution, observe, search=self.search.name)
            except Held:
                if self.search.settings.concurrent == 1:
                    raise
                time.sleep(RETRY_SECONDS)


def _value(objective: Objective, config: Any, summary: Any) -> Value | None:
    row = objective.row(config, summary)
    if row is None or row["estimate"] is None:
        return None
    return Value(*(row[name] for name in ("estimate", "low", "high", "n", "unit")))
