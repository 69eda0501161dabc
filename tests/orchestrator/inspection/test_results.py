"""The tables of a run, as users read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.inspection import results
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.run_files import seal
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import resolve_cells
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import open_store
from orchestrator.tracking import artifacts

HERE = Execution(address="none", mlflow="off", report=False)


def test_earlier_run_is_included_in_sweep_table(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    alone = start(resolve_cells(Spec("toys", "few", {"parts": "3"})), store, HERE)
    swept = start(resolve_cells(Spec("toys", "few", sweep={"parts": ["3", "4"]})), store, HERE)
    table_view = results.read(Journal(store.folder("runs", swept.run)), store, "summary")
    assert table_view.varied == ("run", "parts")
    rows = [(row["parts"], row["estimate"]) for row in table_view.table.to_pylist()]
    assert rows == [(3, 3.0), (4, 6.0)]
    assert alone.run == table_view.table["run"][0].as_py()


def test_sweep_table_covers_cells_that_have_it(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    report = start(resolve_cells(Spec("toys", "few", {"parts": 2}, {"trouble": ["", "nothing"]})), store, HERE)
    journal = Journal(store.folder("runs", report.run))
    parts = results.read(journal, store, "parts")
    assert [(row["trouble"], row["number"]) for row in parts.table.to_pylist()] == [("", 0), ("", 1)]
    assert results.read(journal, store, "pictures").table["trouble"].to_pylist() == ["nothing"]
    assert set(artifacts.single(journal)) == {"summary", "pictures"}
    with pytest.raises(SpecError, match="has no table 'part'; it has summary, parts; did you mean 'parts'"):
        results.read(journal, store, "part")


def test_jointly_varying_settings_are_included(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    report = start(resolve_cells(Spec("toys", "three")), store, HERE)
    table_view = results.read(Journal(store.folder("runs", report.run)), store, "summary")
    assert table_view.varied == ("run", "label")
    assert table_view.redundant_columns == ("parts", "first")
    report_table = report.table("summary")
    assert report_table.select(table_view.table.schema.names).equals(table_view.table)
    assert report_table.equals(results.export(Journal(store.folder("runs", report.run)), store, "summary").table)
    assert table_view.table.schema.names[:5] == ["run", "parts", "first", "label", "metric"]


def test_values_of_several_types_become_text(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    report = start(resolve_cells(Spec("toys", "three")), store, HERE)
    folder = store.folder("runs", report.run)
    about = json.loads((folder / "run.json").read_text())
    about["settings"] = [{"burnt": value} for value in (None, {"kind": "random"}, 3)]
    (folder / "run.json").write_bytes(seal(about))
    table_view = results.read(Journal(folder), store, "summary").table
    assert table_view["burnt"].to_pylist() == [None, '{"kind": "random"}', "3"]
