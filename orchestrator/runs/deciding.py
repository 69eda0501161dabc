"""Drives the pairs of runs that stop once they are decided, in rounds of one pair per concurrent call."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from orchestrator.errors import Absent, Damaged, SpecError
from orchestrator.planning.plan import Plan
from orchestrator.run_folder.journal import Journal, reopen_cell
from orchestrator.runs.session import Session, SessionRun
from orchestrator.scheduling.driver import Driver
from orchestrator.scheduling.rounds import Rounds, extend
from orchestrator.spec.options import Execution
from orchestrator.spec.resolve import Cell
from orchestrator.store import Store

MAX_FRUITLESS_ROUNDS = 3  # maximum number of rounds without a new result, for example if a disk damages every result


def check_execution(parts: list[SessionRun], execution: Execution) -> None:
    """Raise SpecError if the pairs before the deciding one might be incomplete."""
    if execution.tolerate and any(part.rounds is not None for part in parts):
        raise SpecError(
            f"tolerate is {execution.tolerate}; it must be 0 for a run that stops once it is decided, since a pair "
            "counts only after all earlier ones"
        )


def with_more_pairs(journal: Journal, pair_limit: int) -> Cell:
    """Return the cell of a run that stops once it is decided, with this maximum number of pairs."""
    about = journal.about()
    if "cells" in about:
        raise SpecError(f"--most is given, but {journal.run} has several runs; name the run to continue")
    return extend(reopen_cell(journal), about.get("asked", {}), pair_limit)


def drive_rounds(driver: Driver, session: Session) -> bool:
    """Run pairs until each run is decided or has all planned pairs. Returns whether this was achieved.

    The plan of a decided run shrinks to the pairs that decided it.
    """
    waiting = [part for part in session.parts if part.rounds is not None]
    earlier_count = -1
    fruitless_rounds = 0
    while waiting:
        tables_by_run = {}
        for part in waiting:
            if part.rounds:
                tables_by_run[part.journal.run] = _leading_tables(part.rounds, session.store)
        waiting = [part for part in waiting if not _is_over(session, part, tables_by_run[part.journal.run])]
        count = sum(map(len, tables_by_run.values()))
        if count <= earlier_count:
            fruitless_rounds = fruitless_rounds + 1
        else:
            fruitless_rounds = 0
        earlier_count = count
        _forget_unneeded_failures(driver, session)
        if not waiting:
            return True
        if driver.stopped or driver.progress.failed:
            return False
        if fruitless_rounds == MAX_FRUITLESS_ROUNDS:
            driver.progress.paused = "results are repeatedly damaged after being written; check the disk"
            return False
        width = driver.slots()
        plans = []
        for part in waiting:
            if part.rounds:
                plans.append(part.rounds.next(len(tables_by_run[part.journal.run]), width))
        driver.drive(Plan.union(plans), session.store.keys())
    return True


def _leading_tables(rounds: Rounds, store: Store) -> list[pa.Table]:
    """Return the tables of the first pairs, up to the first missing one."""

    def read() -> Iterator[pa.Table]:
        for key in rounds.pairs:
            try:
                yield store.read(key)
            except (Absent, Damaged):  # a damaged table has been set aside, so it is recomputed
                return

    return list(read())


def _is_over(session: Session, part: SessionRun, tables: list[pa.Table]) -> bool:
    """Whether a run is decided or has all pairs. The plan of a decided run shrinks."""
    assert part.rounds is not None
    decided = part.rounds.decided(tables)
    if decided is not None and decided < len(part.rounds.pairs):
        session.curtail(part, part.rounds, decided)
    return decided is not None or len(tables) == len(part.rounds.pairs)


def _forget_unneeded_failures(driver: Driver, session: Session) -> None:
    """Forget failed jobs of later pairs, which are no longer needed."""
    for key in driver.progress.failed.keys() - session.plan.jobs.keys():
        del driver.progress.failed[key]
