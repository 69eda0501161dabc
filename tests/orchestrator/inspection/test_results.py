"""A run's tables as a reader gets them."""

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


def test_a_cell_that_had_been_run_alone_before_has_its_place_in_the_sweeps_table(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    alone = start(resolve_cells(Spec("toys", "few", {"parts": "3"})), store, HERE)
    swept = start(resolve_cells(Spec("toys", "few", sweep={"parts": ["3", "4"]})), store, HERE)
    found = results.read(Journal(store.folder("runs", swept.run)), store, "summary")
    assert found.varied == ("run", "parts")
    rows = [(row["parts"], row["estimate"]) for row in found.table.to_pylist()]
    assert rows == [(3, 3.0), (4, 6.0)]
    assert alone.run == found.table["run"][0].as_py()


def test_a_sweeps_table_has_the_rows_of_the_cells_that_have_it(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    report = start(resolve_cells(Spec("toys", "few", {"parts": 2}, {"trouble": ["", "nothing"]})), store, HERE)
    journal = Journal(store.folder("runs", report.run))
    parts = results.read(journal, store, "parts")
    assert [(row["trouble"], row["number"]) for row in parts.table.to_pylist()] == [("", 0), ("", 1)]
    assert results.read(journal, store, "pictures").table["trouble"].to_pylist() == ["nothing"]
    assert {"summary", "pictures"} == set(artifacts.single(journal))
    with pytest.raises(SpecError, match="has no table 'part'; it has summary, parts; did you mean 'parts'"):
        results.read(journal, store, "part")


def test_columns_that_vary_together_with_others_stand_beside_those_that_tell_cells_apart(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    report = start(resolve_cells(Spec("toys", "three")), store, HERE)
    found = results.read(Journal(store.folder("runs", report.run)), store, "summary")
    assert (found.varied, found.redundant_columns) == (("run", "label"), ("parts", "first"))
    taken = report.table("summary")
    assert taken.select(found.table.schema.names).equals(found.table)
    assert taken.equals(results.export(Journal(store.folder("runs", report.run)), store, "summary").table)
    assert found.table.schema.names[:5] == ["run", "parts", "first", "label", "metric"]


def test_values_of_several_kinds_are_one_column_as_text(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    report = start(resolve_cells(Spec("toys", "three")), store, HERE)
    folder = store.folder("runs", report.run)
    about = json.loads((folder / "run.json").read_text())
    about["settings"] = [{"burnt": value} for value in (None, {"kind": "random"}, 3)]
    (folder / "run.json").write_bytes(seal(about))
    found = results.read(Journal(folder), store, "summary").table
    assert found["burnt"].to_pylist() == [None, '{"kind": "random"}', "3"]
