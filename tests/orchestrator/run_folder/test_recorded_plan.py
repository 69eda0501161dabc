"""A recorded plan replaces planning while all of its inputs are unchanged."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import toys

from orchestrator.planning.plan import Plan, plan_of
from orchestrator.run_folder import journal as run_folder
from orchestrator.run_folder import recorded_plan
from orchestrator.run_folder.recorded_plan import FILE, RecordedPlan, open_plan, record
from orchestrator.runs.lifecycle import resume, start
from orchestrator.runs.report import Report
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store

HERE = Execution(address="none", mlflow="off", report=False)


@pytest.fixture(autouse=True)
def remove_modules_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests load modules from files that are newer than this process or deleted."""
    for name, module in list(sys.modules.items()):
        source = Path(str(getattr(module, "__file__", None) or __file__))
        if not source.exists() or source.stat().st_mtime >= recorded_plan.LOADED:
            monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def planned_cells(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """The cells that are planned again from their runs' folders."""
    cells: list[Cell] = []

    def counted(cell: Cell) -> Plan:
        cells.append(cell)
        return plan_of(cell)

    monkeypatch.setattr(run_folder, "plan_of", counted)
    return cells


@pytest.fixture
def report(store: Store) -> Report:
    return start([Cell("toys", toys.Config(parts=3))], store, HERE)


def journal(store: Store, report: Report) -> run_folder.Journal:
    return run_folder.Journal(Path(store.location) / "runs" / report.run)


def load(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Load a module for the duration of a test."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    monkeypatch.setitem(sys.modules, module, importlib.util.module_from_spec(spec))


def test_finished_run_resumes_without_planning(store: Store, report: Report, planned_cells: list[Cell]) -> None:
    resumed = resume(report.run, store, HERE)
    assert resumed.state == "finished"
    assert resumed.jobs == {"planned": 4, "stored": 4, "done": 0, "failed": 0}
    assert report.roots == resumed.roots
    assert report.summary == resumed.summary
    assert planned_cells == []


@pytest.mark.parametrize("damage", ["delete", "flip"])
def test_missing_or_damaged_result_is_recomputed(
    store: Store, report: Report, planned_cells: list[Cell], damage: str
) -> None:
    key = report.roots["parts"][1]
    path = Path(store.location) / "results" / key[:2] / f"{key}.arrow"
    sound = path.read_bytes()
    if damage == "flip":
        path.write_bytes(sound[:100] + bytes([sound[100] ^ 1]) + sound[101:])
    else:
        path.unlink()
    resumed = resume(report.run, store, HERE)
    assert resumed.state == "finished"
    assert resumed.jobs["done"] == 1
    assert resumed.damaged == int(damage == "flip")
    assert report.summary == resumed.summary
    assert len(planned_cells) == 1  # the plan is made once a job of it is needed


def test_recorded_plan_equals_the_plan(store: Store, report: Report) -> None:
    recorded = open_plan(journal(store, report))
    _, plan = run_folder.reopen_run(journal(store, report))
    assert isinstance(recorded, RecordedPlan)

    def described(plan: Plan) -> tuple[Any, ...]:
        return list(plan.jobs), plan.roots, plan.after, plan.tasks, plan.trains, plan.count(), plan.trainings()

    assert described(plan) == described(recorded)
    assert [plan.inputs[key] for key in plan.jobs] == [recorded.inputs[key] for key in recorded.jobs]


@pytest.mark.parametrize("change", ["config", "source", "derivation", "none"])
def test_any_change_causes_planning(
    change: str,
    store: Store,
    report: Report,
    planned_cells: list[Cell],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "planned_with_this.py"
    source.write_text("VALUE = 1\n")
    os.utime(source, (1e9, 1e9))  # older than this process, as sources are
    load(monkeypatch, "planned_with_this")
    record(journal(store, report), open_plan(journal(store, report)))
    plan_file = journal(store, report).folder / FILE
    match change:
        case "config":
            about = journal(store, report).about()
            journal(store, report).rewrite({**about, "config": {**about["config"], "at": -2}})
        case "source":
            source.write_text("VALUE = 2\n")
        case "derivation":
            plan_file.write_bytes(plan_file.read_bytes().replace(b'"trains"', b'"brains"'))
        case "none":
            plan_file.unlink()
    planned_cells.clear()
    if change == "config":  # as a config that another version reads otherwise
        with pytest.raises(Exception, match="planned by other versions"):
            open_plan(journal(store, report))
    else:
        assert list(report.roots["parts"]) == list(open_plan(journal(store, report)).roots["parts"])
    assert len(planned_cells) == 1


def test_process_with_an_older_source_records_nothing(
    store: Store, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "edited_meanwhile.py").write_text("VALUE = 1\n")
    load(monkeypatch, "edited_meanwhile")
    (journal(store, report).folder / FILE).unlink()
    record(journal(store, report), run_folder.reopen_run(journal(store, report))[1])
    assert not (journal(store, report).folder / FILE).exists()
