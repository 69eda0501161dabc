"""What a specification would run, with nothing run and no store made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.inspection import preview
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.run_files import unseal
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import resolve_cells
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import open_store

HERE = Execution(address="none", mlflow="off", report=False)


def asked(folder: Path, address: str = "none", **given: Any) -> Spec:
    return Spec("toys", store=str(folder / "store"), execution={"address": address}, **given)


def test_where_there_is_no_store_all_is_missing_and_none_is_made(tmp_path: Path) -> None:
    seen = preview.preview(asked(tmp_path, set={"parts": 3}))
    assert seen["tasks"] == [
        {"task": "toys.part", "planned": 3, "stored": 0, "missing": 3},
        {"task": "toys.total", "planned": 1, "stored": 0, "missing": 1},
    ]
    assert tuple(seen[name] for name in ("expected_seconds", "slots", "audit", "preset")) == (None, 1, "toys", None)
    assert list(tmp_path.iterdir()) == []


def test_what_is_stored_is_not_to_run_and_the_rest_is_expected_to_take_as_long(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    done = start(resolve_cells(asked(tmp_path, set={"parts": 3})), store, HERE)
    timings = Journal(store.folder("runs", done.run)).folder / "timings.json"
    timings.write_text('{"toys.part": [2.0], "toys.total": [1.0], "around, none": [10.0]}')
    seen = preview.preview(asked(tmp_path, set={"parts": 5}))
    assert (seen["planned"], seen["stored"], seen["missing"]) == (6, 3, 3)
    named = unseal((timings.parent / "plan.json").read_bytes())
    assert len(named["jobs"]) == 4
    again = preview.preview(asked(tmp_path, set={"parts": 3}))
    assert (0, 0.0, done.run) == (again["missing"], again["expected_seconds"], again["cells"][0]["run"])


def test_jobs_that_cells_share_are_counted_once(tmp_path: Path) -> None:
    seen = preview.preview(asked(tmp_path, set={"parts": 3}, sweep={"label": ("a", "b")}))
    assert (
        seen["planned"],
        [cell["setting"] for cell in seen["cells"]],
        [cell["planned"] for cell in seen["cells"]],
    ) == (5, [{"label": "a"}, {"label": "b"}], [4, 4])


@pytest.mark.parametrize(("address", "slots", "gpus"), [("none", 1, 1), ("local", 3, 4), (None, 3, 4)])
def test_calls_run_one_at_a_time_in_this_process_and_else_one_a_processor(
    monkeypatch: pytest.MonkeyPatch, address: str | None, slots: int, gpus: int
) -> None:
    monkeypatch.setattr(preview.os, "sched_getaffinity", lambda process: {0, 1, 5}, raising=False)
    monkeypatch.setattr(preview.environment, "count_gpus", lambda: 4)
    assert (slots, gpus) == (preview.slots_at(address), preview.gpus_at(address))


def test_the_speed_of_this_machine_is_kept_in_a_store_that_is_there(tmp_path: Path) -> None:
    open_store(tmp_path / "store")
    seen = preview.preview(Spec("unique_feature", "smoke", store=str(tmp_path / "store")))
    assert seen["seconds_low"] < seen["expected_seconds"] < seen["seconds_high"]
    assert len(list((tmp_path / "store" / "speed").iterdir())) == 1
    assert (seen["unknown"], " here, " in seen["time"]) == ([], True)
