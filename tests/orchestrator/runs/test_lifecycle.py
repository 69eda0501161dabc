"""A run finishes despite failures, computes no result twice, and reports the results that it lacks."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import toys

from orchestrator.errors import EngramError, Held, SpecError, StoreError
from orchestrator.inspection import results
from orchestrator.inspection.status import status
from orchestrator.run_folder import recorded_plan, run_files
from orchestrator.run_folder.journal import Journal
from orchestrator.runs.lifecycle import resume, start
from orchestrator.runs.report import Report
from orchestrator.scheduling.waiting import Clock
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store
from orchestrator.tracking import facts

HERE = Execution(address="none", mlflow="off", report=False)


def run(
    store: Store, execution: Execution = HERE, events: list[Mapping[str, Any]] | None = None, **fields: Any
) -> Report:
    observe = None if events is None else events.append
    return start([Cell("toys", toys.Config(**fields))], store, execution, observe)


def computation_counts(folder: Path) -> Counter[int]:
    """Count how often each part was computed."""
    log = folder / "computed.log"
    return Counter(map(int, log.read_text().split())) if log.exists() else Counter()


def logged_events(store: Store, report: Report) -> list[dict[str, Any]]:
    return list(Journal(Path(store.location) / "runs" / report.run).events())


def test_answer_precedes_the_report(store: Store) -> None:
    course: list[object] = []

    def take_answer(report: Report) -> None:
        course.append((report.state, report.page, report.table("summary")["estimate"].to_pylist()))

    execution = Execution(address="none", mlflow="off")
    cell = Cell("toys", toys.Config(parts=3))
    report = start([cell], store, execution, lambda event: course.append(event.get("step")), take_answer=take_answer)
    answer = course.index(("finished", None, [3.0]))
    assert answer < course.index("writing the report")
    assert report.page is not None
    course.clear()
    resume(report.run, store, execution, take_answer=take_answer)
    assert course == [("finished", None, [3.0])]


def test_run_computes_its_plan_and_tables(store: Store, tmp_path: Path) -> None:
    report = run(store, folder=str(tmp_path))
    assert report.state == "finished"
    assert report.exit_code == 0
    assert report.jobs == {"planned": 7, "stored": 7, "done": 7, "failed": 0}
    assert report.table("summary")["estimate"].to_pylist() == [15.0]
    assert list(range(6)) == report.table("parts")["number"].to_pylist()
    assert Counter(range(6)) == computation_counts(tmp_path)


def test_repeated_command_computes_nothing(store: Store, tmp_path: Path) -> None:
    first = run(store, folder=str(tmp_path))
    events: list[Mapping[str, Any]] = []
    second = run(store, folder=str(tmp_path), events=events)
    assert first.run == second.run
    assert second.jobs == {"planned": 7, "stored": 7, "done": 0, "failed": 0}
    assert Counter(range(6)) == computation_counts(tmp_path)
    (stored_results,) = [event["results"] for event in logged_events(store, second) if event["event"] == "stored"]
    assert stored_results == {"toys.part": list(first.roots["parts"]), "toys.total": list(first.roots["summary"])}
    assert [event["event"] for event in events] == ["step", "planned", "step", "finished"]


def test_parquet_parts_hold_each_row_once(store: Store) -> None:
    for _ in range(3):
        report = run(store, parts=150)
    folder = Path(store.location) / "runs" / report.run / "tables"
    assert sorted(range(150)) == sorted(pq.read_table(folder / "parts")["number"].to_pylist())
    assert pq.read_table(folder / "summary").num_rows == 1


@pytest.mark.parametrize("together", [None, 1, 2, 5, 64])
def test_call_size_does_not_change_tables(store: Store, together: int | None) -> None:
    report = run(store, replace(HERE, together=together), parts=20)
    assert list(range(20)) == report.table("parts")["number"].to_pylist()


def test_jobs_that_fail_together_are_computed_alone(store: Store, tmp_path: Path) -> None:
    events: list[Mapping[str, Any]] = []
    report = run(store, replace(HERE, together=4), events, parts=4, trouble="together", folder=str(tmp_path))
    assert report.state == "finished"
    assert Counter(range(4)) == computation_counts(tmp_path)
    assert "RuntimeError: not all of these at once" in {event.get("cause") for event in events}


def test_failed_job_is_reported_and_others_finish(store: Store, tmp_path: Path) -> None:
    report = run(store, trouble="raise", at=2, folder=str(tmp_path))
    assert report.state == "failed"
    assert report.exit_code == 3
    assert report.jobs == {"planned": 7, "stored": 5, "done": 5, "failed": 1}
    ((key, task, error),) = report.failures
    assert task == "toys.part"
    assert error == "ValueError: part 2 cannot be had"
    assert "Traceback" in (store.failure(key) or "")
    with pytest.raises(EngramError, match="has no rows in 'summary'"):
        report.table("summary")


def test_resume_repeats_only_failed_jobs(store: Store, tmp_path: Path) -> None:
    failed = run(store, trouble="raise", at=2, folder=str(tmp_path))
    (tmp_path / "mended").touch()
    report = resume(failed.run, store, HERE)
    assert report.jobs == {"planned": 7, "stored": 7, "done": 2, "failed": 0}
    assert Counter({**dict.fromkeys(range(6), 1), 2: 2}) == computation_counts(tmp_path)
    assert store.failure(failed.failures[0][0]) is None


def test_tolerated_failure_leaves_tables_of_available_results(store: Store, tmp_path: Path) -> None:
    report = run(store, replace(HERE, tolerate=1), trouble="raise", at=5, folder=str(tmp_path))
    assert report.state == "failed"
    assert report.exit_code == 3
    assert [(row["estimate"], row["n"]) for row in report.table("summary").to_pylist()] == [(10.0, 5)]
    assert report.jobs == status(Journal(store.folder("runs", report.run)), store).jobs
    folder = Path(store.location) / "runs" / report.run / "tables"
    assert pq.read_table(folder / "summary")["estimate"].to_pylist() == [10.0]
    (tmp_path / "mended").touch()
    repaired = resume(report.run, store, HERE)
    assert repaired.table("summary")["estimate"].to_pylist() == [15.0]
    assert pq.read_table(folder / "summary")["estimate"].to_pylist() == [15.0]


def test_tolerating_all_failures_gives_no_answer(store: Store) -> None:
    report = run(store, replace(HERE, tolerate=1), parts=1, trouble="raise", at=0)
    assert report.state == "failed"
    assert report.exit_code == 3
    journal = Journal(store.folder("runs", report.run))
    assert results.summary(journal, store).table.to_pylist() == []
    assert results.answer(journal, store) is None
    assert facts.metrics(journal, store, None) == {}


def test_more_failures_than_tolerated_leave_no_summary(store: Store) -> None:
    report = run(store, replace(HERE, tolerate=0), trouble="raise", at=5)
    assert report.roots["summary"][0] not in store


def test_fail_fast_does_not_start_the_rest(store: Store, tmp_path: Path) -> None:
    report = run(store, replace(HERE, fail_fast=True), trouble="raise", at=0, folder=str(tmp_path))
    assert report.state == "failed"
    assert Counter([0]) == computation_counts(tmp_path)


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "delete", "swap"])
def test_damaged_result_is_recomputed_and_reported(store: Store, tmp_path: Path, harm: str) -> None:
    before = run(store, folder=str(tmp_path))
    first_file, second_file = (_file(store, key) for key in before.roots["parts"][:2])
    data = bytearray(first_file.read_bytes())
    if harm == "cut":
        first_file.write_bytes(data[: len(data) // 2])
    elif harm == "flip":
        data[len(data) // 3] ^= 1
        first_file.write_bytes(data)
    elif harm == "empty":
        first_file.write_bytes(b"")
    elif harm == "delete":
        first_file.unlink()
    else:
        first_file.write_bytes(second_file.read_bytes())
    events: list[Mapping[str, Any]] = []
    after = run(store, folder=str(tmp_path), events=events)
    assert after.state == "finished"
    assert Counter({**dict.fromkeys(range(6), 1), 0: 2}) == computation_counts(tmp_path)
    assert before.table("parts").column("number") == after.table("parts").column("number")
    if harm != "delete":  # a missing result is planned like a new one
        assert after.damaged == 1
        assert [before.roots["parts"][0]] == [event["key"] for event in events if event["event"] == "damaged"]
        assert len(list((Path(store.location) / "quarantine").glob("*.arrow"))) == 1


def test_result_deleted_during_the_run_is_recomputed(store: Store, tmp_path: Path) -> None:
    deleted: list[str] = []
    events: list[Mapping[str, Any]] = []

    def observe(event: Mapping[str, Any]) -> None:
        events.append(event)
        if event["event"] == "done" and not deleted:
            deleted.append(event["key"])
            _file(store, event["key"]).unlink()

    report = start([Cell("toys", toys.Config(folder=str(tmp_path)))], store, HERE, observe)
    assert report.state == "finished"
    assert report.damaged == 1
    assert {event["event"] for event in events} - {"planned", "done", "finished", "step", "ready"} == {"missing"}
    assert Counter({**dict.fromkeys(range(6), 1), 0: 2}) == computation_counts(tmp_path)


def test_flipped_bit_costs_one_computation(store: Store, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"parts": 12, "first": 1, "share": True, "folder": str(tmp_path)}
    before = run(store, **fields)
    (shared,) = store.keys() - {key for keys in before.roots.values() for key in keys}
    for key in before.roots["parts"]:
        _file(store, key).unlink()
    data = bytearray(_file(store, shared).read_bytes())
    data[len(data) // 3] ^= 1
    _file(store, shared).write_bytes(data)
    after = run(store, replace(HERE, together=12), **fields)
    assert after.state == "finished"
    assert after.exit_code == 0
    assert after.jobs["done"] == 13
    assert after.jobs["failed"] == 0
    assert after.damaged == 1
    assert Counter(dict.fromkeys(range(13), 2)) == computation_counts(tmp_path)


def test_second_driver_is_refused_while_first_lives(store: Store, tmp_path: Path) -> None:
    refused: list[str] = []

    def observe(event: Mapping[str, Any]) -> None:
        if event["event"] == "done":
            with pytest.raises(Held, match=str(os.getpid())):
                run(store, folder=str(tmp_path))
            refused.append(event["key"])

    start([Cell("toys", toys.Config(folder=str(tmp_path)))], store, HERE, observe)
    assert len(refused) == 7
    assert computation_counts(tmp_path) == Counter(range(6))


def test_replaced_driver_writes_nothing_and_names_its_successor(store: Store) -> None:
    hours = [0.0]
    runs = Path(store.location) / "runs"
    snapshots: list[tuple[bytes, list[Path]]] = []
    events: list[Mapping[str, Any]] = []

    def files() -> tuple[bytes, list[Path]]:
        [log] = runs.glob("*/events.jsonl")
        return log.read_bytes(), sorted(path for path in runs.rglob("*") if path.is_file() and path.name != "clock")

    def observe(event: Mapping[str, Any]) -> None:
        events.append(event)
        if event["event"] == "done" and not snapshots:  # this machine sleeps for an hour, and another one takes over
            [lease] = runs.glob("*/lease.json")
            new_lease = {**json.loads(lease.read_text()), "host": "another", "pid": 77, "token": "theirs"}
            lease.with_name("theirs").write_text(json.dumps(new_lease))
            lease.with_name("theirs").rename(lease)
            hours[0] = 1.0
            snapshots.append(files())

    clock = Clock(now=lambda: time.time() + 3600 * hours[0])
    with pytest.raises(Held, match=r"toys-\w+ was taken over .* disconnected: process 77 on another drives it now;"):
        start([Cell("toys", toys.Config())], store, HERE, observe, clock=clock)
    [(log, paths)] = snapshots
    assert (log, [path for path in paths if path.parent.name != ".drivers"]) == files()
    assert {event["event"] for event in events} == {"step", "planned", "ready", "done"}
    [lease] = runs.glob("*/lease.json")
    assert json.loads(lease.read_text())["token"] == "theirs"


def test_sweep_computes_shared_jobs_once(store: Store, tmp_path: Path) -> None:
    cells = []
    for parts in (4, 6):
        for label in ("a", "b"):
            cells.append(
                Cell(
                    "toys",
                    toys.Config(parts=parts, label=label, folder=str(tmp_path)),
                    setting={"parts": parts, "label": label},
                )
            )
    report = start(cells, store, HERE, None)
    assert report.state == "finished"
    assert Counter(range(6)) == computation_counts(tmp_path)
    assert [cell.table("summary")["estimate"][0].as_py() for cell in report.cells] == [6.0, 6.0, 15.0, 15.0]
    assert report.jobs == {"planned": 10, "stored": 10, "done": 10, "failed": 0}
    resumed = resume(report.run, store, HERE)
    assert resumed.jobs == {"planned": 10, "stored": 10, "done": 0, "failed": 0}
    assert len(resumed.cells) == 4


def test_sweep_needs_no_more_threads_than_one_run(store: Store) -> None:
    before = set(threading.enumerate())
    thread_counts: list[int] = []
    cells = [Cell("toys", toys.Config(parts=1, first=first)) for first in range(30)]
    start(cells, store, HERE, lambda event: thread_counts.append(len(set(threading.enumerate()) - before)))
    assert max(thread_counts) == 2  # the lease's heart, and what answers a signal


def test_again_creates_a_new_run_reusing_results(store: Store, tmp_path: Path) -> None:
    first = run(store, folder=str(tmp_path))
    second = run(store, replace(HERE, again=True), folder=str(tmp_path))
    assert second.run == f"{first.run}-2"
    assert Counter(range(6)) == computation_counts(tmp_path)


def test_time_limit_interrupts_and_the_command_continues(store: Store, tmp_path: Path) -> None:
    done = [0.0]  # a second for each

    def observe(event: Mapping[str, Any]) -> None:
        done[0] += event["event"] == "done"

    cells = [Cell("toys", toys.Config(parts=8, folder=str(tmp_path)))]
    execution = replace(HERE, stop_after=2.5, together=1)
    report = start(cells, store, execution, observe, clock=Clock(monotonic=lambda: done[0]))
    assert report.state == "interrupted"
    assert report.exit_code == 130
    assert report.jobs["stored"] == 3
    assert start(cells, store, HERE).state == "finished"
    assert Counter(range(8)) == computation_counts(tmp_path)


def test_unreadable_plan_stops_the_run_unchanged(store: Store) -> None:
    report = run(store)
    plan = Path(store.location) / "runs" / report.run / "plan.json"
    plan.write_text(plan.read_text()[:-20])
    before = plan.read_bytes()
    for restart in (lambda: run(store), lambda: resume(report.run, store, HERE)):
        with pytest.raises(StoreError, match=r"plan\.json"):
            restart()
    assert before == plan.read_bytes()


def test_run_of_other_task_versions_is_not_resumed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(store)
    mark = toys.part.__task__  # type: ignore[attr-defined]
    monkeypatch.setattr(toys.part, "__task__", type(mark)(mark.name, 2, 0.0, mark.many, mark.batch_key))
    (Path(store.location) / "runs" / report.run / recorded_plan.FILE).unlink(
        missing_ok=True
    )  # whose digest a new source changes
    with pytest.raises(EngramError, match=r"planned by other versions of toys\.part"):
        resume(report.run, store, HERE)


@pytest.mark.parametrize("is_complete", [True, False])
def test_run_with_another_key_format_is_not_resumed(store: Store, is_complete: bool) -> None:
    report = run(store)
    folder = Path(store.location) / "runs" / report.run
    about = run_files.unseal((folder / "run.json").read_bytes())
    del about["key_format"]  # format 1 was not recorded
    (folder / "run.json").write_bytes(run_files.seal(about))
    (folder / recorded_plan.FILE).unlink(missing_ok=True)
    if not is_complete:
        next(Path(store.location).glob("results/*/*.arrow")).unlink()
    with pytest.raises(
        EngramError, match=f"run {report.run} was planned by a version of Engram with another key format"
    ):
        resume(report.run, store, HERE)


def test_unknown_run_is_named(store: Store) -> None:
    with pytest.raises(SpecError, match="unknown run 'toys-x'"):
        resume("toys-x", store, HERE)


def test_record_states_where_and_how_a_result_originated(store: Store) -> None:
    report = run(store)
    record = store.record(report.roots["summary"][0])
    assert record["task"] == "toys.total"
    assert list(report.roots["parts"]) == record["inputs"]
    assert record["config"] == {"label": ""}
    assert record["worker"].endswith(f":{os.getpid()}")
    assert set(record["versions"]) >= {"numpy", "pyarrow", "python"}
    json.dumps(dict(record))


def _file(store: Store, key: str) -> Path:
    return Path(store.location) / "results" / key[:2] / f"{key}.arrow"


def ways(store: Store, report: Report) -> set[tuple[str, str]]:
    """The ways in which the parts of a run were computed, and the origin of each choice."""
    records = []
    for key in Journal(Path(store.location) / "runs" / report.run).roots()["parts"]:
        records.append(store.record(key))
    return {(record["way"], record["chosen_by"]) for record in records}


def choosing_parts(folder: Path) -> list[str]:
    return (folder / "chosen.log").read_text().split()


def test_way_is_chosen_once_per_run(store: Store, tmp_path: Path) -> None:
    report = run(store, parts=6, trouble="choose", folder=str(tmp_path))
    assert ways(store, report) == {("stack", "part 0")}
    (tmp_path / "slow").touch()  # it would be chosen otherwise now
    for key in list(Journal(Path(store.location) / "runs" / report.run).roots()["parts"])[:3]:
        (Path(store.location) / "results" / key[:2] / f"{key}.arrow").unlink()
    resumed = resume(report.run, store, HERE)
    assert resumed.jobs["done"] == 3
    assert ways(store, report) == {("stack", "part 0")}
    assert choosing_parts(tmp_path) == ["0"]


def test_forced_way_changes_neither_choice_nor_run_name(store: Store, tmp_path: Path) -> None:
    def lose(report: Report) -> None:
        for key in Journal(Path(store.location) / "runs" / report.run).roots()["parts"]:
            (Path(store.location) / "results" / key[:2] / f"{key}.arrow").unlink()

    fields = {"parts": 3, "trouble": "choose", "folder": str(tmp_path)}
    forced = run(store, replace(HERE, way="graph"), **fields)
    assert ways(store, forced) == {("graph", "force")}
    assert not (tmp_path / "chosen.log").exists()
    lose(forced)
    auto = run(store, **fields)
    assert forced.run == auto.run
    assert ways(store, auto) == {("stack", "part 0")}
    lose(auto)
    assert ways(store, run(store, replace(HERE, way="loop"), **fields)) == {("loop", "force")}
    lose(auto)
    assert ways(store, resume(auto.run, store, HERE)) == {("stack", "part 0")}
    assert choosing_parts(tmp_path) == ["0"]


def test_each_run_or_sweep_chooses_once(store: Store, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"trouble": "choose", "folder": str(tmp_path)}
    cells = []
    for first in (0, 10):
        cells.append(Cell("toys", toys.Config(parts=2, first=first, **fields)))
    swept = start(cells, store, HERE)
    assert choosing_parts(tmp_path) == ["0"]
    assert [path.name for path in Path(store.location, "runs", swept.run).glob("way*")] == ["ways"]
    for report in swept.cells:
        for key in Journal(Path(store.location) / "runs" / report.run).roots()["parts"]:
            (Path(store.location) / "results" / key[:2] / f"{key}.arrow").unlink()
    assert {resume(report.run, store, HERE).jobs["done"] for report in swept.cells} == {2}
    assert choosing_parts(tmp_path) == ["0"]
    run(store, parts=2, first=20, **fields)
    assert choosing_parts(tmp_path) == ["0", "20"]


def test_models_per_step_are_limited_by_call_size(store: Store, tmp_path: Path) -> None:
    report = run(store, replace(HERE, together=2), parts=3, trouble="choose", folder=str(tmp_path))
    keys = Journal(Path(store.location) / "runs" / report.run).roots()["parts"]
    assert {store.record(key)["members"] for key in keys} == {2}


def test_run_whose_choice_cannot_be_stored_pauses(store: Store, tmp_path: Path) -> None:
    fields = {"parts": 3, "trouble": "choose", "folder": str(tmp_path)}
    name = run(store, replace(HERE, way="loop"), **fields).run
    folder = Path(store.location) / "runs" / name
    for key in Journal(folder).roots()["parts"]:
        (Path(store.location) / "results" / key[:2] / f"{key}.arrow").unlink()
    (folder / "ways").write_text("in the way")
    paused = resume(name, store, HERE)
    assert paused.state == "paused"
    assert paused.exit_code == 1
    assert str(folder / "ways") in paused.note
    assert paused.jobs["failed"] == 0
    (folder / "ways").unlink()
    assert resume(name, store, HERE).state == "finished"
    assert ways(store, paused) == {("stack", "part 0")}


def test_killed_run_keeps_its_choice(store: Store, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"parts": 3, "trouble": "choose, die", "folder": str(tmp_path)}
    driver = multiprocessing.get_context("spawn").Process(target=run, args=(store,), kwargs=fields)
    driver.start()
    driver.join()
    assert driver.exitcode == -signal.SIGKILL
    (tmp_path / "mended").touch()
    (tmp_path / "slow").touch()
    report = run(store, **fields)
    assert report.state == "finished"
    assert ways(store, report) == {("stack", "part 0")}
    assert choosing_parts(tmp_path) == ["0"]
