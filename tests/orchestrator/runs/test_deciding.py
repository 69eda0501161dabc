"""A run with --until decided ends at the same pair despite interruptions and damage, and reports it everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import toys

from orchestrator.errors import SpecError
from orchestrator.inspection import results
from orchestrator.inspection.garbage import find_garbage
from orchestrator.inspection.status import status
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.run_folder.journal import Journal
from orchestrator.runs.deciding import with_more_pairs
from orchestrator.runs.lifecycle import resume, start
from orchestrator.runs.report import Report
from orchestrator.scheduling.driver import Driver
from orchestrator.scheduling.rounds import Rounds
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Spec
from orchestrator.store import Store
from tests.orchestrator.runs.test_lifecycle import HERE, _file, computation_counts, logged_events

# Ranks 20, 21, ... among 201 decide after the sixth, ranks from 150 on never do.
ASKED = toys.Config(parts=12, first=20, level=0.05)
SAID = "decided after 6 of at most 12 pairs of trainings, at an error rate of 0.05; the other 6 jobs are not needed"


def run(store: Store, config: toys.Config = ASKED, execution=HERE) -> Report:
    return start([cell(config)], store, execution)


def cell(config: toys.Config = ASKED, **setting: int) -> Cell:
    return Cell("toys", config, setting=setting, stopping=toys.AUDIT.stopping)


def summed(report: Report) -> list[float]:
    return report.table("summary")["estimate"].to_pylist()


def test_run_ends_at_the_deciding_pair(store: Store, tmp_path: Path) -> None:
    report = run(store, replace(ASKED, folder=str(tmp_path)))
    assert report.state == "decided"
    assert report.exit_code == 0
    assert set(range(20, 26)) == computation_counts(tmp_path).keys()
    assert [float(sum(range(20, 26)))] == summed(report)
    assert list(range(20, 26)) == report.table("parts")["number"].to_pylist()
    assert report.jobs == {"planned": 14, "stored": 8, "done": 8, "failed": 0}
    journal = Journal(Path(store.location) / "runs" / report.run)
    run_status = status(journal, store)
    assert (report.state, report.note) == ("decided", SAID)
    assert (run_status.state, run_status.note) == ("decided", SAID)
    assert run_status.finished
    assert not find_garbage(store)
    assert results.read(journal, store, "parts").table.num_rows == 6


def test_decided_run_stays_decided(store: Store) -> None:
    first = run(store)
    for repeated in (run(store), resume(first.run, store, HERE)):
        assert repeated.run == first.run
        assert repeated.state == "decided"
        assert repeated.jobs["done"] == 0
        assert first.note == repeated.note


def test_without_evidence_all_pairs_are_computed(store: Store) -> None:
    report = run(store, replace(ASKED, first=150))
    assert report.state == "finished"
    assert report.note == ""
    assert report.jobs == {"planned": 14, "stored": 14, "done": 14, "failed": 0}


def test_last_pair_may_decide(store: Store) -> None:
    assert run(store, replace(ASKED, parts=6)).state == "finished"


def test_results_after_the_deciding_pair_do_not_count(store: Store) -> None:
    complete = run(store, replace(ASKED, level=0.0))
    decided = run(store)
    assert complete.state == "finished"
    assert [float(sum(range(20, 26)))] == summed(decided)
    assert decided.jobs["done"] + 1 == 3  # the evidence and the sum of six
    assert set(complete.roots["parts"]) <= store.keys()


def numbers(plan: Plan) -> list[int]:
    return sorted(job.config.number for job in plan.jobs.values() if isinstance(job.config, toys.Part))


def test_rounds_fill_the_slots_and_decide_equally() -> None:
    rounds = Rounds.of(cell(), plan_of(cell()))
    assert rounds is not None
    assert numbers(rounds.next(3, 2)) == [20, 21, 22, 23, 24]
    assert numbers(rounds.first(4)) == [20, 21, 22, 23]
    tables = [toys.compute(toys.Part(number)) for number in range(20, 32)]
    assert [rounds.decided(tables[:leading]) for leading in range(13)] == [None] * 6 + [6] * 7
    assert rounds.describe(6, 6) == SAID
    for to_its_end in (cell(replace(ASKED, level=0.0)), Cell("toys", ASKED)):
        assert Rounds.of(to_its_end, plan_of(to_its_end)) is None


def test_failed_pair_blocks_later_pairs(store: Store, tmp_path: Path) -> None:
    config = replace(ASKED, trouble="raise", at=23, folder=str(tmp_path))
    failed = run(store, config)
    assert failed.state == "failed"
    assert failed.exit_code == 3
    assert not {30, 31} & computation_counts(tmp_path).keys()  # the round of the failure is the last one
    (tmp_path / "mended").touch()
    assert resume(failed.run, store, HERE).state == "decided"


def test_failure_after_the_deciding_pair_is_irrelevant(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Driver, "slots", lambda _: 12)  # a round of all pairs
    report = run(store, replace(ASKED, trouble="raise", at=27, folder=str(tmp_path)))
    assert set(range(20, 32)) == computation_counts(tmp_path).keys()
    assert report.state == "decided"
    assert report.failures == ()
    assert [float(sum(range(20, 26)))] == summed(report)


@pytest.mark.parametrize("earlier", [(20, 3), (21, 9), (29, 3), (24, 2)])
def test_earlier_results_do_not_move_the_end(store: Store, earlier: tuple[int, int]) -> None:
    first, parts = earlier
    run(store, toys.Config(parts=parts, first=first))  # of the same pairs, as a start that was killed leaves them
    report = run(store)
    assert report.state == "decided"
    assert summed(report) == [float(sum(range(20, 26)))]


def test_damaged_pair_is_recomputed_with_equal_end(store: Store) -> None:
    first = run(store)
    path = _file(store, first.roots["parts"][3])
    path.write_bytes(path.read_bytes()[:-9])
    repeated = resume(first.run, store, HERE)
    assert repeated.state == "decided"
    assert repeated.note == first.note
    assert summed(first) == summed(repeated)


def test_repeatedly_damaged_results_pause_the_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds.of(cell(), plan_of(cell()))
    drive = Driver.drive
    driven = []
    assert rounds is not None
    first = rounds.pairs[0]

    def drive_and_damage(driver: Driver, plan: Plan, stored_keys: set[str]) -> None:
        drive(driver, plan, stored_keys)
        driven.append(first in plan.jobs)
        _file(store, first).write_bytes(_file(store, first).read_bytes()[:-9])

    monkeypatch.setattr(Driver, "drive", drive_and_damage)
    report = run(store)
    assert report.state == "paused"
    assert report.exit_code == 1
    assert driven == [True] * 3
    assert report.note == "results are repeatedly damaged after being written; check the disk"


def test_run_stopped_between_rounds_is_interrupted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    drive = Driver.drive

    def drive_and_stop(driver: Driver, plan: Plan, stored_keys: set[str]) -> None:
        drive(driver, plan, stored_keys)
        driver.stop.ask("it was asked to")

    monkeypatch.setattr(Driver, "drive", drive_and_stop)
    monkeypatch.setattr(Driver, "slots", lambda _: 2)
    report = run(store)
    assert report.state == "interrupted"
    assert report.note == "it was asked to"
    assert report.jobs["done"] == 2


def test_missing_result_makes_decided_run_interrupted(store: Store) -> None:
    report = run(store)
    _file(store, report.roots["parts"][0]).unlink()
    assert status(Journal(Path(store.location) / "runs" / report.run), store).state == "interrupted"


def test_more_pairs_continue_and_may_decide(store: Store, tmp_path: Path) -> None:
    spec = Spec("toys", set={"first": 20, "level": 0.05, "parts": 5, "folder": str(tmp_path)})
    few = start([replace(cell(replace(ASKED, parts=5, folder=str(tmp_path))), spec=spec)], store, HERE)
    assert few.state == "finished"
    journal = Journal(Path(store.location) / "runs" / few.run)
    longer = with_more_pairs(journal, 12)
    assert longer.spec is not None
    assert longer.spec.set == {**spec.set, "parts": 12}
    more = start([longer], store, HERE)
    assert more.state == "decided"
    assert more.jobs["done"] == 3
    assert set(computation_counts(tmp_path).values()) == {1}
    with pytest.raises(SpecError, match="most is 5; it must be above 5"):
        with_more_pairs(journal, 5)
    with pytest.raises(SpecError, match="this run was not started with --until decided"):
        with_more_pairs(Journal(Path(store.location) / "runs" / run(store, replace(ASKED, level=0.0)).run), 20)


def test_each_cell_of_a_sweep_ends_separately(store: Store) -> None:
    cells = [cell(replace(ASKED, first=first), first=first) for first in (20, 150)]
    report = start(cells, store, HERE)
    assert [entry.state for entry in report.cells] == ["decided", "finished"]
    assert report.state == "decided"
    assert report.exit_code == 0
    with pytest.raises(SpecError, match="has several runs; name the run to continue"):
        with_more_pairs(Journal(Path(store.location) / "runs" / report.run), 20)


def test_run_until_decided_tolerates_no_failure(store: Store) -> None:
    complete_cell = cell(replace(ASKED, level=0.0, parts=1), level=0)
    for cells in ([cell()], [cell(level=1), complete_cell]):
        with pytest.raises(SpecError, match="tolerate is 2; it must be 0"):
            start(cells, store, replace(HERE, tolerate=2))
    assert start([complete_cell], store, replace(HERE, tolerate=2)).state == "finished"


def test_log_lists_unneeded_jobs_once(store: Store) -> None:
    (event,) = [event for event in logged_events(store, run(store)) if event["event"] == "curtailed"]
    assert len(event["keys"]) == 8
    assert len(event["instead"]) == 2
