"""A search, from its first trial to its recommendation and its page.

A search folder has the form of a sweep whose cells are the trials, with the tables `trials` and `front`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.errors import EngramError, SpecError, Unwritable
from orchestrator.inspection import pages, status
from orchestrator.inspection.search_results import CUT, FRESH, START, SearchAnswer
from orchestrator.planning.extras import RAYLESS, check_extras
from orchestrator.planning.identity import KEY_FORMAT, run_id
from orchestrator.planning.plan import plan_of
from orchestrator.run_folder.cancellation import CANCELLED, Cancellation
from orchestrator.run_folder.journal import Journal, cell_description
from orchestrator.runs import finalise
from orchestrator.scheduling.driver import Observer
from orchestrator.searches.definition import SEED, Search, find_value, search_description
from orchestrator.searches.evaluation import Evaluation
from orchestrator.searches.recommendation import describe_choices, format_interval, recommend, winner
from orchestrator.searches.trials import FAILED, STOPPED, Trial, read, table
from orchestrator.spec import resolve
from orchestrator.spec.options import Execution
from orchestrator.store import Store, atomic_write, lease
from tasks.numerics import seeds

TABLE = "trials"
FRONT = "front"
PASSED_VARIABLES = ("ENGRAM_", "MLFLOW_")  # prefixes of environment variables that trials in other processes need
SIGNALS = ("SIGINT", "SIGTERM")  # notes of runs that were stopped by a signal
SEEDS = 1_000_000  # fresh seeds are below this number; they have few digits because people read them


class SearchFolder:
    """The folder of a search: its settings, the trials so far and its recommendation.

    Its content is derived from the results of the trial runs and rewritten whenever a trial ends.
    """

    def __init__(self, journal: Journal, search: Search) -> None:
        self.journal = journal
        self.search = search
        self.trials: dict[tuple[str, int], Trial] = {}

    def begin(self, first: str) -> None:
        """Create the folder if it does not exist. Its first cell is the run of the search's start."""
        self.journal.create(self._about([first], [{}], None), None)
        with suppress(OSError, pa.ArrowException):
            rows = pq.read_table(self._file(TABLE)).to_pylist()
            self.trials = {(trial.part, trial.number): trial for trial in read(rows)}

    def record(self, trial: Trial) -> None:
        """Record the outcome of a trial. Raises Unwritable."""
        self.trials[trial.part, trial.number] = trial
        self.write(None)

    def write(self, answer: SearchAnswer | None) -> None:
        """Rewrite the tables and the cells, and store the answer if the search has ended."""
        trials = table(list(self.trials.values()), self.search.objectives)
        for name, rows in ((TABLE, trials), (FRONT, trials.filter(pc.field("front")))):
            self._write(name, rows)
        cells = {row["run"]: row for row in trials.to_pylist() if row["run"]}
        if not cells:
            return
        trials_by_run = {trial.run: trial for trial in self.trials.values() if trial.run}
        self.journal.rewrite(self._about(list(cells), [_setting(trials_by_run[run]) for run in cells], answer))

    def _about(
        self, cells: Sequence[str], settings: Iterable[Mapping[str, Any]], answer: SearchAnswer | None
    ) -> dict[str, Any]:
        description = search_description(self.search)
        if answer is not None:
            description["recommendation"] = answer.as_json()
        return {
            "audit": self.search.start.audit,
            "preset": self.search.spec.preset,
            "key_format": KEY_FORMAT,
            "cells": list(cells),
            "settings": [dict(setting) for setting in settings],
            "search": description,
        }

    def _file(self, name: str) -> Path:
        return self.journal.folder / "tables" / name / f"{name}.parquet"

    def _write(self, name: str, rows: pa.Table) -> None:
        path = self._file(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write.put_in_place(path) as draft:
                pq.write_table(rows, draft)
        except OSError as error:
            raise Unwritable(f"cannot write {path}: {error.strerror or error}") from None


def _search_folder(store: Store, name: str, search: Search) -> SearchFolder:
    """Return the search folder with this name, which may not exist yet."""
    return SearchFolder(Journal(store.folder("runs") / name), search)


def _setting(trial: Trial) -> dict[str, Any]:
    """Return the fields that distinguish a trial's run from the other runs."""
    fresh = {}
    if trial.part == "fresh":
        fresh = {"seed": trial.seed}
    return {**trial.setting, **fresh}


def find_search(store: Store, word: str | None) -> Journal:
    """Return the search with this name or prefix, or the newest one for None. Raises SpecError if there is none."""
    if word is not None:
        journal = status.find(store, word)
        if "search" not in journal.about():
            raise SpecError(f"run {journal.run} is not a search; continue it with: engram resume {journal.run}")
        return journal
    searches = []
    for file in store.folder("runs").glob("*-search-*/run.json"):
        searches.append(Journal(file.parent))
    if not searches:
        raise SpecError(f"{store.location} has no searches")
    return max(searches, key=lambda journal: (journal.folder / "run.json").stat().st_mtime)


@dataclass(frozen=True)
class SearchOutcome:
    """The outcome of a search: the name of its folder, its trials and its answer.

    `stop_reason` says why the search has not ended, for example a signal. It is empty if the search has ended.
    """

    name: str
    trials: tuple[Trial, ...]
    answer: SearchAnswer
    stop_reason: str = ""

    @property
    def exit_code(self) -> int:
        if self.stop_reason:
            if self.stop_reason in SIGNALS or self.stop_reason.startswith(CANCELLED):
                return 130
            return 1
        return 3 if self.failed else 0

    @property
    def failed(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.state == FAILED)


def check(execution: Execution) -> None:
    """Raise SpecError if a search cannot run with these execution settings."""
    if execution.address in RAYLESS:
        raise SpecError(f"address is {execution.address}; a search needs Ray Tune: give local, auto or HOST:PORT")


def run(search: Search, store: Store, execution: Execution, observe: Observer | None = None) -> SearchOutcome:
    """Run a search or continue it.

    Raises Held if another live driver is running the search, SpecError if it is invalid, and EngramError if nothing
    more can run. In the last case the same command continues the search later. A full disk is reported in the result
    instead, and the same command again continues the search.
    """
    check(execution)
    from orchestrator.executors.connection import connect  # this import and the next one load ray
    from orchestrator.searches import tuning

    search = replace(search, start=resolve.pin_cells([search.start], store.digests())[0])
    keep = "state" if search.settings.rungs else execution.keep  # the next rung continues from this state
    trial_execution = replace(execution, mlflow="off", report=False, keep=keep, stop_after=None)
    environment = {}
    for name, value in os.environ.items():
        if name.startswith(PASSED_VARIABLES):
            environment[name] = value
    evaluation = Evaluation(search, store.location, trial_execution, environment)
    send_event = _event_sender(observe)
    search_folder = _search_folder(store, search.name, search)
    check_extras(plan_of(search.start), store.keys, execution.address, search.settings)
    search_folder.begin(_create_start_run(search, store))
    with lease.acquire([search_folder.journal.folder], report=lambda line: send_event("told", line=line)):
        deadline = None if search.settings.budget is None else time.monotonic() + search.settings.budget
        with connect(execution.address or "local"):  # shared by the search and the runs in this process
            try:
                cancellation = Cancellation(store, search.name, time.monotonic)
                stop_reason = _run_trials(
                    tuning.run_tuner, evaluation, search_folder, store, deadline, cancellation, send_event, observe
                )
                if not stop_reason:
                    stop_reason = _audit_again(evaluation, search_folder, store, send_event, observe)
            except Unwritable as error:  # the disk is full; finished trials are stored
                stop_reason = str(error)
        trials = tuple(search_folder.trials.values())
        answer = recommend(trials, search.objectives, search.allowance)
        try:
            search_folder.write(answer)
            if store.mirror is not None:
                store.mirror.push(search.name, True)
        except Unwritable as error:
            stop_reason = stop_reason or str(error)
    return SearchOutcome(search.name, trials, answer, stop_reason)


def _create_start_run(search: Search, store: Store) -> str:
    """Create the folder of the run that the search starts from and return its name."""
    plan = plan_of(search.start)
    name = run_id(search.start.audit, list(plan.jobs), search.start.config)
    Journal(store.folder("runs") / name).create(cell_description(search.start), plan)
    return name


def _run_trials(
    run_tuner: Callable[..., None],
    evaluation: Evaluation,
    search_folder: SearchFolder,
    store: Store,
    deadline: float | None,
    cancellation: Cancellation,
    send_event: Callable[..., None],
    observe: Observer | None,
) -> str:
    """Run the trials of the search. Returns why some were not run, or an empty string."""
    search = evaluation.search
    send_event("step", step="auditing the start of the search")
    start = evaluation.trial(store, START, {}, observe=_message_observer(observe))
    search_folder.record(start)
    if start.note in SIGNALS:
        return start.note
    if not start.is_complete:
        return f"the audit of its start is {start.state}: {start.note or 'it has no estimate'}"
    broken: list[Trial] = []
    unwritten: list[str] = []
    cancelled: list[str] = []
    ended_trials: list[Trial] = []

    def record_trial(trial: Trial) -> None:
        ended_trials.append(trial)
        try:
            search_folder.record(trial)
        except Unwritable as error:  # Tune would count an exception here as a failed trial
            unwritten.append(str(error))
        if trial.state == CUT:
            broken.append(trial)
        send_event("told", line=_line(trial, search))
        send_event("step", step=f"{len(ended_trials) - len(broken)} of {search.trials} trials done")

    def is_over() -> bool:
        if (reason := cancellation.look()) is not None:
            cancelled.append(reason)
        return bool(broken or unwritten or cancelled) or (deadline is not None and time.monotonic() > deadline)

    send_event("step", step=f"0 of {search.trials} trials done")
    run_tuner(evaluation, record_trial, is_over)
    if broken:
        return f"trial {broken[0].number} was interrupted: {broken[0].note}"
    if unwritten or cancelled:
        return (unwritten or cancelled)[0]
    if len(ended_trials) < search.trials:
        return f"the budget was spent after {len(ended_trials)} of {search.trials} trials"
    return ""


def _audit_again(
    evaluation: Evaluation,
    search_folder: SearchFolder,
    store: Store,
    send_event: Callable[..., None],
    observe: Observer | None,
) -> str:
    """Audit the start and the winner with fresh seeds and canaries. Returns why this failed, or an empty string."""
    search = evaluation.search
    best = winner(list(search_folder.trials.values()), search.objectives, search.allowance)
    if best is None:
        return ""
    seed = _fresh_seed(search)
    for number, setting in ((START, {}), (best.number, best.setting)):
        send_event("step", step=f"auditing the {'winner' if number else 'start'} with fresh seeds")
        epochs = None
        if search.settings.rungs and number:
            epochs = search.settings.rungs[-1]
        trial = evaluation.trial(store, number, setting, epochs, seed, FRESH, _message_observer(observe))
        search_folder.record(trial)
        if trial.note in SIGNALS:
            return trial.note
        if trial.state == CUT:
            return f"the fresh audit was interrupted: {trial.note}"
    return ""


def _fresh_seed(search: Search) -> int:
    """Return the seed of the fresh audits.

    It differs from the search seed and is the same whenever the search is continued.
    """
    search_seed = int(find_value(search.start.config, SEED) or 0)
    seed = seeds.derive(search_seed, "fresh audit") % SEEDS
    return seed if seed != search_seed else seed + 1


def _line(trial: Trial, search: Search) -> str:
    """Format the outcome of a trial as one line."""
    if trial.memorization is None or trial.utility is None:
        return f"trial {trial.number}: {describe_choices(trial)}: {trial.state}: {trial.note}"
    objectives = search.objectives
    stopped = ""
    if trial.state == STOPPED:
        stopped = f", stopped after {trial.epochs} epochs"
    return (
        f"trial {trial.number}: {describe_choices(trial)}: {objectives.memorization.name}"
        f" {format_interval(trial.memorization)}, "
        f"{objectives.utility.name} {format_interval(trial.utility)}{stopped}"
    )


def _message_observer(observe: Observer | None) -> Observer | None:
    """Return the observer for a single run of a search, which receives the run's messages but not its job counts."""
    if observe is None:
        return None
    return lambda event: observe(event) if event["event"] in ("told", "refused", "differs") else None


def _event_sender(observe: Observer | None) -> Callable[..., None]:
    def send_event(event: str, **values: Any) -> None:
        if observe is not None:
            observe({"event": event, **values})

    return send_event


def publish_results(
    outcome: SearchOutcome, store: Store, execution: Execution, observe: Observer | None = None
) -> tuple[str | None, str | None]:
    """Draw the page of a search and deliver it to MLflow. Returns the page path and the address of the tracked run.

    The page links to the pages of the runs that support the answer. These are drawn too and link back. `engram report`
    draws the pages of other trials. Errors in drawing or delivery are reported and do not change the outcome.
    """
    send_event = _event_sender(observe)
    page = None
    if execution.report:
        send_event("step", step="writing the report")
        try:
            is_first_page = pages.page(store.folder("runs", outcome.name)) is None
            if is_first_page:  # so that the other pages can link to this one
                pages.draw(store, outcome.name)
            for run in _supporting_runs(outcome):
                if is_first_page or pages.page(store.folder("runs", run)) is None:
                    pages.draw(store, run)
            page = str(pages.draw(store, outcome.name))
        except EngramError as error:
            send_event("told", line=str(error))
        runs = [trial.run for trial in outcome.trials if trial.run]
        finalise.draw_index(store, [*runs, outcome.name], lambda line: send_event("told", line=line))
    send_event("step", step="updating MLflow")
    return page, _deliver(outcome, store, execution, send_event)


def _supporting_runs(outcome: SearchOutcome) -> list[str]:
    """Return the runs that support the answer: the start, the winner, and their fresh audits."""
    numbers = (START, outcome.answer.winner)
    return list(dict.fromkeys(trial.run for trial in outcome.trials if trial.number in numbers and trial.is_complete))


def _deliver(outcome: SearchOutcome, store: Store, execution: Execution, send_event: Callable[..., None]) -> str | None:
    runs = list(dict.fromkeys(trial.run for trial in outcome.trials if trial.run))
    delivery = finalise.delivery_of(store, runs, outcome.name, execution, lambda line: send_event("told", line=line))
    if delivery is None:
        return None
    for line in delivery.finish(lambda: False):
        send_event("told", line=line)
    return delivery.address(outcome.name)
