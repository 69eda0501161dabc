"""What is said of a run and of a key, each plan being read once however much was planned."""

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


def test_of_a_run_each_task_tells_what_was_reused_and_what_was_computed(store: Store) -> None:
    run(store, parts=3)
    said = explain.run(run(store, parts=5), store)
    assert (said["audit"], len(said["tasks"])) == ("toys", 2)
    assert said["tasks"][0] == {"task": "toys.part", "planned": 5, "reused": 3, "computed": 2, "failed": 0, "absent": 0}


def test_of_a_sweep_jobs_that_cells_share_are_told_once(store: Store) -> None:
    cells = [Cell("toys", toys.Config(parts=3, label=label), setting={"label": label}) for label in "ab"]
    sweep = start(cells, store, HERE).run
    said = explain.run(Journal(store.folder("runs", sweep)), store)
    assert [each["planned"] for each in said["tasks"]] == [3, 2]


def test_of_a_stored_key_its_record_and_its_inputs_are_told(store: Store) -> None:
    journal = run(store, parts=3)
    (total,) = keys(journal, "toys.total")
    said = explain.key(store, total)
    assert ("stored", "toys.total", [journal.run]) == (said["state"], said["task"], said["runs"])
    parts = [{"key": key, "task": "toys.part", "stored": True} for key in keys(journal, "toys.part")]
    assert parts == said["inputs"]


def test_of_a_failed_key_its_traceback_and_its_nearest_kin_are_told(store: Store, tmp_path: Path) -> None:
    journal = run(store, parts=3, trouble="raise", at=1, folder=str(tmp_path))
    failed = next(key for key in keys(journal, "toys.part") if key not in store)
    said = explain.key(store, failed)
    assert ("failed", {"number"}) == (said["state"], set(said["nearest"]["fields"]))
    assert "part 1 cannot be had" in said["traceback"]
    (total,) = keys(journal, "toys.total")
    waiting = explain.key(store, total)
    assert ("waiting", [failed]) == (waiting["state"], waiting["waits_for"])
    stored = {each["key"]: each["stored"] for each in waiting["inputs"]}
    assert (3, {failed}) == (len(stored), {key for key, there in stored.items() if not there})


def test_of_a_key_that_nobody_planned_only_its_absence_is_told(store: Store) -> None:
    run(store, parts=2)
    assert explain.key(store, "0" * 64) == {"key": "0" * 64, "runs": [], "state": "absent"}
    with pytest.raises(EngramError, match=r"no run in .* plans 000000000000"):
        explain.planned_job(store, "0" * 64)


def test_a_key_is_named_by_its_beginning(store: Store) -> None:
    (total,) = keys(run(store, parts=2), "toys.total")
    assert total == explain.resolve_key(store, total[:10])
    for word in (total[:3], "0000", "x" * 8, total.upper()):
        with pytest.raises(SpecError, match="is neither a run nor a key"):
            explain.resolve_key(store, word)


def test_several_keys_of_one_beginning_are_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run(store, parts=2)
    monkeypatch.setattr(type(store), "keys", lambda self: {"abcd" + "0" * 60, "abcd" + "1" * 60})
    with pytest.raises(
        SpecError, match="2 keys begin with abcd: abcd000000000000, abcd111111111111; give more characters"
    ):
        explain.resolve_key(store, "abcd")


def test_each_plan_is_read_once_for_a_key_however_many_inputs_it_has(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(store, parts=2)
    journal = run(store, parts=20)
    (total,) = keys(journal, "toys.total")
    read: list[str] = []
    tasks = Journal.tasks

    def counted(self: Journal) -> dict[str, str]:
        read.append(self.run)
        return tasks(self)

    monkeypatch.setattr(Journal, "tasks", counted)
    explain.key(store, total)
    assert sorted(status.journals(store)) == sorted(read)
