"""Starts and resumes runs.

A run is one audit with one configuration, from its plan to its tables. A sweep is several runs with one plan. The id of
a run is derived from its plan's keys, so starting it again reopens it. After a kill at any moment, the same command
continues it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import SpecError
from orchestrator.planning.code import code_of
from orchestrator.planning.extras import check_extras
from orchestrator.planning.identity import run_id
from orchestrator.planning.idle_fields import describe_idle_fields, find_idle_fields
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.pricing.place import device_memory
from orchestrator.run_folder.code_changes import accept, check_code, describe_code, find_changes, note_accepted
from orchestrator.run_folder.journal import (
    Journal,
    cell_description,
    renew_execution,
    reopen_cell,
    sweep_description,
)
from orchestrator.run_folder.recorded_plan import open_plan, record
from orchestrator.runs import deciding
from orchestrator.runs.held_runs import drive_held
from orchestrator.runs.kept_code import keep_code
from orchestrator.runs.report import Report
from orchestrator.runs.session import SessionRun
from orchestrator.scheduling.driver import Observer
from orchestrator.scheduling.rounds import Rounds
from orchestrator.scheduling.waiting import SYSTEM, Clock
from orchestrator.spec.options import Execution
from orchestrator.spec.resolve import Cell, LeftOut, check_image_cache, describe_data, left_out_as_json
from orchestrator.spec.specification import Spec, execution
from orchestrator.store import Store


def prepare_cells(spec: Spec, cells: Sequence[Cell], store: Store) -> tuple[list[Cell], list[str]]:
    """Return the pinned cells to run, with lines for the user: changed code, settings without effect, unusual data.

    The files of training programs are kept in the store. Changes to the user's code are accepted if the
    specification says so.
    """
    changes = find_changes(cells, store)
    lines = []
    for change in changes:
        reuse = "--same-code reuses the results of the earlier code"
        if spec.same_code:
            reuse = "accepted as equivalent"
        lines.append(f"{change.describe()}; {reuse}")
    if spec.same_code:
        cells = [accept(cell, changes) for cell in cells]
    cached_digests = store.digests()
    idle_fields = find_idle_fields(spec, cached_digests)
    if idle_fields:
        lines.append(describe_idle_fields(idle_fields, spec))
    kept_cells = [keep_code(cell, store) for cell in cells]
    if execution(spec).address in (None, "local", "none"):  # otherwise, the cache is on other machines
        check_image_cache(kept_cells, device_memory())
    return kept_cells, [*lines, *describe_data(kept_cells, cached_digests, device_memory())]


def start(
    cells: Sequence[Cell],
    store: Store,
    execution: Execution,
    observe: Observer | None = None,
    *,
    clock: Clock = SYSTEM,
    search: str | None = None,
    left_out: Sequence[LeftOut] = (),
    take_answer: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Run one cell of an audit, or the cells of a sweep as one plan, to completion. Stored results are reused.

    `search` is the name of the search if this is a trial, and is recorded in the run's log. `left_out` lists the
    preset's skipped cells, which are recorded in the folder of the run or sweep. `take_answer` receives the report as
    soon as all results are stored, before pages are drawn and the run is delivered to MLflow.

    Raises Held if another living driver has the run, Unwritable if its folder cannot be created, and ClusterError if
    the cluster cannot be used.
    """
    if observe is not None:
        observe({"event": "step", "step": "planning"})
    runs = store.folder("runs")
    plans = [plan_of(cell) for cell in cells]
    check_extras(Plan.union(plans), store.keys, execution.address)
    parts = [
        SessionRun(
            plan,
            Journal(_folder(runs, run_id(cell.audit, list(plan.jobs), cell.config), execution.again)),
            Rounds.of(cell, plan),
        )
        for cell, plan in zip(cells, plans, strict=True)
    ]
    deciding.check_execution(parts, execution)
    if len({part.journal.run for part in parts}) < len(parts):
        raise SpecError("two cells of the sweep are equal; vary a field that affects the result")
    for cell, part in zip(cells, parts, strict=True):
        part.journal.create(cell_description(cell) | describe_code(code_of(cell.config, part.plan)), part.plan)
        part.journal.check()  # an unreadable journal stops the run before anything is written
        renew_execution(part.journal, cell)
        if cell.accepted:
            note_accepted(part.journal, cell, part.plan)
        record(part.journal, part.plan)
    skipped_cells = left_out_as_json(cells, left_out)
    if len(parts) == 1:
        parts[0].journal.note_left_out(skipped_cells)
        report = drive_held(parts, store, execution, observe, None, clock, search, take_answer=take_answer)
        return replace(report, left_out=tuple(left_out))
    names = sorted(part.journal.run for part in parts)
    name = f"{cells[0].audit}-sweep-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:8]}"
    sweep = Journal(runs / name)
    sweep.create(sweep_description(cells, [part.journal.run for part in parts]), None)
    sweep.check()
    sweep.note_left_out(skipped_cells)
    report = drive_held(parts, store, execution, observe, sweep, clock, take_answer=take_answer)
    return replace(report, left_out=tuple(left_out))


def resume(
    run: str,
    store: Store,
    execution: Execution,
    observe: Observer | None = None,
    take_answer: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Continue a run or sweep, given its full name. `take_answer` receives the report as in `start`.

    Raises SpecError if the user's code has changed in the meantime, unless `execution.same_code` accepts the change.
    """
    runs = store.folder("runs")
    journal = Journal(runs / run)
    if not journal.exists:
        raise SpecError(f"unknown run {run!r} in {store.location}")
    about = journal.about()
    is_sweep = "cells" in about
    if is_sweep:
        journals = [Journal(runs / name) for name in about["cells"]]
    else:
        journals = [journal]
    for cell in journals:
        check_code(cell, store, execution.same_code)
    parts = [_reopen(cell) for cell in journals]
    deciding.check_execution(parts, execution)

    def check_missing() -> None:
        plan = Plan.union(part.plan for part in parts)
        stored_keys = store.keys()
        if plan.missing(stored_keys):
            check_extras(plan, lambda: stored_keys, execution.address)

    sweep = journal if is_sweep else None
    return drive_held(parts, store, execution, observe, sweep, check=check_missing, take_answer=take_answer)


def _reopen(journal: Journal) -> SessionRun:
    plan = open_plan(journal)
    return SessionRun(plan, journal, Rounds.of(reopen_cell(journal), plan))


def _folder(runs: Path, run: str, is_new_run: bool) -> Path:
    folder = runs / run
    count = 2
    while is_new_run and folder.exists():
        folder = runs / f"{run}-{count}"
        count += 1
    return folder
