"""The folder of a search: a sweep whose cells are its trials, with the tables `trials` and `front`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.errors import SpecError, Unwritable
from orchestrator.inspection import status
from orchestrator.run_folder.journal import Journal
from orchestrator.searches import recommendation
from orchestrator.searches.definition import Search, search_description
from orchestrator.searches.recommendation import Recommendation
from orchestrator.searches.trials import Trial, read, table
from orchestrator.store import Store

TABLE, FRONT = "trials", "front"


class SearchFolder:
    """What is kept of a search: its settings, its trials so far and what it recommends.

    Results are those of the trials' runs. Everything here follows from them, and is written anew as trials end.
    """

    def __init__(self, journal: Journal, search: Search) -> None:
        self.journal = journal
        self.search = search
        self.trials: dict[tuple[str, int], Trial] = {}

    def begin(self, first: str) -> None:
        """Make the folder, where there is none, with the first cell, the run that the search begins from."""
        self.journal.create(self._about([first], [{}], None), None)
        with suppress(OSError, pa.ArrowException):
            rows = pq.read_table(self._file(TABLE)).to_pylist()
            self.trials = {(trial.part, trial.number): trial for trial in read(rows)}

    def record(self, trial: Trial) -> None:
        """Keep what came of a trial. Raises Unwritable."""
        self.trials[trial.part, trial.number] = trial
        self.write(None)

    def write(self, answer: Recommendation | None) -> None:
        """Write the tables and the cells anew, and the answer of a search that has ended."""
        trials = table(list(self.trials.values()), self.search.objectives)
        for name, rows in ((TABLE, trials), (FRONT, trials.filter(pc.field("front")))):
            self._write(name, rows)
        cells = {row["run"]: row for row in trials.to_pylist() if row["run"]}
        if not cells:
            return
        told = {trial.run: trial for trial in self.trials.values() if trial.run}
        self.journal.rewrite(self._about(list(cells), [_setting(told[run]) for run in cells], answer))

    def _about(
        self, cells: Sequence[str], settings: Iterable[Mapping[str, Any]], answer: Recommendation | None
    ) -> dict[str, Any]:
        told = search_description(self.search)
        if answer is not None:
            told["recommendation"] = recommendation.recommendation_json(answer)
        return {
            "audit": self.search.start.audit,
            "preset": self.search.spec.preset,
            "cells": list(cells),
            "settings": [dict(setting) for setting in settings],
            "search": told,
        }

    def _file(self, name: str) -> str:
        return str(self.journal.folder / "tables" / name / f"{name}.parquet")

    def _write(self, name: str, rows: pa.Table) -> None:
        path = self._file(name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            beside = f"{path}.{os.getpid()}.{os.urandom(8).hex()}"
            try:
                pq.write_table(rows, beside)
                os.replace(beside, path)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(beside)
        except OSError as error:
            raise Unwritable(f"cannot write {path}: {error.strerror or error}") from None


def search_folder(store: Store, name: str, search: Search) -> SearchFolder:
    """The folder of this name, which need not be there yet."""
    return SearchFolder(Journal(store.folder("runs") / name), search)


def _setting(trial: Trial) -> dict[str, Any]:
    """What tells the run of a trial apart from the others'."""
    fresh = {"seed": trial.seed} if trial.part == "fresh" else {}
    return {**trial.setting, **fresh}


def find(store: Store, word: str | None) -> Journal:
    """The search of this name or beginning of it, the newest one for None. Raises SpecError where there is none."""
    if word is not None:
        journal = status.find(store, word)
        if "search" not in journal.about():
            raise SpecError(f"run {journal.run} is no search; it is continued by: engram resume {journal.run}")
        return journal
    there = [Journal(file.parent) for file in store.folder("runs").glob("*-search-*/run.json")]
    if not there:
        raise SpecError(f"there are no searches in {store.location}")
    return max(there, key=lambda journal: (journal.folder / "run.json").stat().st_mtime)
