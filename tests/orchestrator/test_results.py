"""A run's tables as a reader gets them."""

from __future__ import annotations

from pathlib import Path

from orchestrator import results
from orchestrator.cells import wanted
from orchestrator.execution import Execution
from orchestrator.journal import Journal
from orchestrator.runs import start
from orchestrator.spec import Spec
from orchestrator.store import open_store

HERE = Execution(address="none", mlflow="off", report=False)


def test_a_cell_that_had_been_run_alone_before_has_its_place_in_the_sweeps_table(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    alone = start(wanted(Spec("toys", "few", {"parts": "3"})), store, HERE)
    swept = start(wanted(Spec("toys", "few", sweep={"parts": ["3", "4"]})), store, HERE)
    found = results.read(Journal(store.folder("runs", swept.run)), store, "summary")
    assert ("run", "parts") == found.varied
    rows = [(row["parts"], row["estimate"]) for row in found.table.to_pylist()]
    assert [(3, 3.0), (4, 6.0)] == rows
    assert alone.run == found.table["run"][0].as_py()
