"""Explanations of runs and keys. Each plan is read once, however many jobs it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import toys

from orchestrator.errors import EngramError, SpecError
from orchestrator.inspection import explain, status
from orchestrator.run_folder.journal import Journal
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store

HERE = Execution(address="none", mlflow="off", report=False)


def run(store: Store, **fields: Any) -> Journal:
    return Journal(store.folder("runs", start([Cell("toys", toys.Config(**fields))], store, HERE).run))


def keys(journal: Journal, task: str) -> list[str]:
    return [key for key, name in journal.tasks().items() if name == task]


def test_run_counts_reused_and_computed_jobs_by_task(store: Store) -> None:
    run(store, parts=3)
    explanation = explain.run(run(store, parts=5), store)
    assert explanation["audit"] == "toys"
    assert len(explanation["tasks"]) == 2
    assert explanation["tasks"][0] == {
        "task": "toys.part",
        "planned": 5,
        "reused": 3,
        "computed": 2,
        "failed": 0,
        "absent": 0,
    }


def test_sweep_counts_shared_jobs_once(store: Store) -> None:
    cells = []
    for label in "ab":
        cells.append(Cell("toys", toys.Config(parts=3, label=label), setting={"label": label}))
    sweep = start(cells, store, HERE).run
    explanation = explain.run(Journal(store.folder("runs", sweep)), store)
    assert [task["planned"] for task in explanation["tasks"]] == [3, 2]


def test_stored_key_shows_record_and_inputs(store: Store) -> None:
    journal = run(store, parts=3)
    (total,) = keys(journal, "toys.total")
    explanation = explain.key(store, total)
    assert explanation["state"] == "stored"
    assert explanation["task"] == "toys.total"
    assert explanation["runs"] == [journal.run]
    parts = []
    for key in keys(journal, "toys.part"):
        parts.append({"key": key, "task": "toys.part", "stored": True})
    assert parts == explanation["inputs"]


def test_failed_key_shows_traceback_and_nearest_result(store: Store, tmp_path: Path) -> None:
    journal = run(store, parts=3, trouble="raise", at=1, folder=str(tmp_path))
    failed = next(key for key in keys(journal, "toys.part") if key not in store)
    explanation = explain.key(store, failed)
    assert explanation["state"] == "failed"
    assert set(explanation["nearest"]["fields"]) == {"number"}
    assert "part 1 cannot be had" in explanation["traceback"]
    (total,) = keys(journal, "toys.total")
    waiting = explain.key(store, total)
    assert waiting["state"] == "waiting"
    assert waiting["waits_for"] == [failed]
    is_stored = {}
    for dependency in waiting["inputs"]:
        is_stored[dependency["key"]] = dependency["stored"]
    assert len(is_stored) == 3
    assert {key for key, has_result in is_stored.items() if not has_result} == {failed}


def test_unplanned_key_is_reported_as_absent(store: Store) -> None:
    run(store, parts=2)
    assert explain.key(store, "0" * 64) == {"key": "0" * 64, "runs": [], "state": "absent"}
    with pytest.raises(EngramError, match=r"no run in .* plans 000000000000"):
        explain.planned_job(store, "0" * 64)


def test_key_is_found_by_its_prefix(store: Store) -> None:
    (total,) = keys(run(store, parts=2), "toys.total")
    assert total == explain.resolve_key(store, total[:10])
    for word in (total[:3], "0000", "x" * 8, total.upper()):
        with pytest.raises(SpecError, match="is neither a run nor a key"):
            explain.resolve_key(store, word)


def test_ambiguous_prefix_lists_its_keys(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run(store, parts=2)
    monkeypatch.setattr(type(store), "keys", lambda self: {"abcd" + "0" * 60, "abcd" + "1" * 60})
    with pytest.raises(
        SpecError, match="2 keys begin with abcd: abcd000000000000, abcd111111111111; give more characters"
    ):
        explain.resolve_key(store, "abcd")


def test_each_plan_is_read_once(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(store, parts=2)
    journal = run(store, parts=20)
    (total,) = keys(journal, "toys.total")
    runs_read: list[str] = []
    tasks = Journal.tasks

    def counted(self: Journal) -> dict[str, str]:
        runs_read.append(self.run)
        return tasks(self)

    monkeypatch.setattr(Journal, "tasks", counted)
    explain.key(store, total)
    assert sorted(status.journals(store)) == sorted(runs_read)
